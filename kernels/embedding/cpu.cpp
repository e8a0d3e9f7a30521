// Implements embedding and add_position: rows of a table by token or by position, and the tables' gradients.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/embedding.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Returns where a table's shard holds the row of a token, or -1 where another shard does.
std::int64_t shard_row(const Tensor& table, std::int32_t token) {
  const std::int64_t row = token - table.start[0];
  return row >= 0 && row < table.dim[0] ? row : -1;
}

template <class T>
void embedding(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Embedding> op(args);
  const Tensor &tokens = op["tokens"], &table = op["table"], &y = op["y"];
  const std::int64_t width = table.dim[1];
  const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(T);
  parallel_ranges(*context.workers, tokens.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = shard_row(table, tokens.as<const std::int32_t>()[i]);
      void* to = y.as<T>() + i * width;
      if (row < 0)
        std::memset(to, 0, bytes);
      else
        std::memcpy(to, table.as<const T>() + row * width, bytes);
    }
  });
}

// A thread owns columns, so that tokens that share a row are added in their order.
template <class T, class Sum>
void embedding_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EmbeddingWeightGrad> op(args);
  const Tensor &tokens = op["tokens"], &dy = op["dy"], &dtable = op["dtable"];
  const std::int64_t width = dtable.dim[1], count = tokens.elements(), padding = op.integer("padding");
  parallel_ranges(*context.workers, width, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t token = tokens.as<const std::int32_t>()[i];
      const std::int64_t row = shard_row(dtable, token);
      if (row < 0 || token == padding) continue;
      const T* __restrict terms = dy.as<const T>() + i * width;
      Sum* __restrict sum = dtable.as<Sum>() + row * width;
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) add_to(sum[c], load(terms[c]));
    }
  });
}

// `places` gives the rows of x's positions. A position beyond the table uses its last row.
template <class T>
void add_rows(const Tensor& x, const Tensor& table, const Places& places, const Tensor& y,
              const KernelContext& context) {
  const std::int64_t seq = x.dim[1], width = x.dim[2], rows = table.dim[0];
  parallel_ranges(*context.workers, x.dim[0] * seq, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* __restrict from = x.as<const T>() + row * width;
      const T* __restrict position =
          table.as<const T>() + std::min(places.position(row % seq), rows - 1) * width;
      T* __restrict to = y.as<T>() + row * width;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) store(to[c], load(from[c]) + load(position[c]));
    }
  });
}

template <class T>
void add_position(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddPosition> op(args);
  add_rows<T>(op["x"], op["table"], {op["x"].start[1], op["positions"]}, op["y"], context);
}

template <class T>
void add_position_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddPositionAt> op(args);
  add_rows<T>(op["x"], op["table"], {position_in(op["position"])}, op["y"], context);
}

// A thread owns positions, whose rows are its own, and adds the samples in their order.
template <class T, class Sum>
void position_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PositionWeightGrad> op(args);
  const Tensor &dy = op["dy"], &dtable = op["dtable"];
  const Places places(dy.start[1], op["positions"]);
  const std::int64_t seq = dy.dim[1], width = dy.dim[2];
  if (op.begins("dtable")) std::fill_n(dtable.as<Sum>(), dtable.elements(), Sum{});
  parallel_ranges(*context.workers, seq, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      Sum* __restrict sum = dtable.as<Sum>() + places.position(s) * width;
      for (std::int64_t b = 0; b < dy.dim[0]; ++b) {
        const T* __restrict terms = dy.as<const T>() + (b * seq + s) * width;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) add_to(sum[c], load(terms[c]));
      }
    }
  });
}

Kernel select_embedding(const OpShape& shape) {
  const ShapeOf<ops::Embedding> s(shape);
  if (s["tokens"].dtype != DType::i32 || !same_type(s, {"table", "y"})) return nullptr;
  return choose_value(s["table"].dtype, []<class T>() -> Kernel { return embedding<T>; });
}

Kernel select_embedding_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::EmbeddingWeightGrad> s(shape);
  if (s["tokens"].dtype != DType::i32) return nullptr;
  return choose_accumulation(s["dy"].dtype, s["dtable"].dtype,
                             []<class T, class Sum>() -> Kernel { return embedding_weight_grad<T, Sum>; });
}

Kernel select_add_position(const OpShape& shape) {
  const ShapeOf<ops::AddPosition> s(shape);
  if (!same_type(s, {"x", "table", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return add_position<T>; });
}

Kernel select_add_position_at(const OpShape& shape) {
  const ShapeOf<ops::AddPositionAt> s(shape);
  if (!same_type(s, {"x", "table", "y"}) || s["position"].dtype != DType::f64) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return add_position_at<T>; });
}

Kernel select_position_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::PositionWeightGrad> s(shape);
  return choose_accumulation(s["dy"].dtype, s["dtable"].dtype,
                             []<class T, class Sum>() -> Kernel { return position_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> embedding_kernels();
std::vector<KernelDef> embedding_kernels() {
  return {{ops::Embedding::kind, select_embedding},
          {ops::EmbeddingWeightGrad::kind, select_embedding_weight_grad},
          {ops::AddPosition::kind, select_add_position},
          {ops::AddPositionAt::kind, select_add_position_at},
          {ops::PositionWeightGrad::kind, select_position_weight_grad, nullptr,
           bits_of<ops::PositionWeightGrad>("dtable")}};
}

}  // namespace prun::cpu::PRUN_ISA
