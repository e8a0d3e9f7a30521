// Implements add_parts, take_part, pair and half, for stretches of one dimension. Each element is rounded
// once, so the bits are the same wherever rows are cut.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/parts.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;  // counts elements

// Describes a value as rows of a whole dimension and all behind it, and how many elements one of the
// dimension has.
struct PartRows {
  std::int64_t rows, row, unit;

  PartRows(const Tensor& x, std::int64_t dim) : rows(1), row(1), unit(1) {
    for (std::int64_t d = 0; d < x.rank; ++d) (d < dim ? rows : row) *= x.dim[d];
    unit = row / std::max<std::int64_t>(1, x.dim[dim]);
  }
  std::int64_t rows_each() const { return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, row)); }
};

template <class T>
void add_row(T* __restrict y, const T* __restrict b, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(y[i], load(y[i]) + load(b[i]));
}

template <class T>
void add_parts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddParts> op(args);
  const PartRows whole(op["a"], op.integer("dim"));
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const y = op["y"].as<T>() + r * whole.row;
      if (const T* const a = op["a"].as<const T>() + r * whole.row; a != y) std::copy_n(a, whole.row, y);
      const auto add = [&](const Tensor& part, std::int64_t first, std::int64_t last) {
        if (!part.data) return;
        const std::int64_t n = (last - first) * whole.unit;
        add_row(y + first * whole.unit, part.as<const T>() + r * n, n);
      };
      add(op["b"], op.integer("begin_b"), op.integer("end_b"));
      add(op["c"], op.integer("begin_c"), op.integer("end_c"));
      add(op["d"], op.integer("begin_d"), op.integer("end_d"));
    }
  });
}

// Copies elements [begin, begin + n) of each row.
template <class T>
void copy_parts(const KernelContext& context, const PartRows& whole, std::int64_t begin, std::int64_t n,
                const Tensor& x, const Tensor& y) {
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t r = first; r < last; ++r)
                      std::copy_n(x.as<const T>() + r * whole.row + begin, n, y.as<T>() + r * n);
                  });
}

template <class T>
void take_part(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TakePart> op(args);
  const PartRows whole(op["x"], op.integer("dim"));
  const std::int64_t first = op.integer("begin"), n = (op.integer("end") - first) * whole.unit;
  copy_parts<T>(context, whole, first * whole.unit, n, op["x"], op["y"]);
}

template <class T>
void pair(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Pair> op(args);
  const PartRows whole(op["y"], op["y"].rank - 1);
  const std::int64_t n = whole.row / 2;
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const y = op["y"].as<T>() + r * whole.row;
      std::copy_n(op["a"].as<const T>() + r * n, n, y);
      std::copy_n(op["b"].as<const T>() + r * n, n, y + n);
    }
  });
}

template <class T>
void half(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Half> op(args);
  const PartRows whole(op["pair"], op["pair"].rank - 1);
  const std::int64_t n = whole.row / 2;
  copy_parts<T>(context, whole, op.integer("second") * n, n, op["pair"], op["y"]);
}

Kernel select_add_parts(const OpShape& shape) {
  const ShapeOf<ops::AddParts> s(shape);
  if (!same_type(s, {"a", "b", "c", "d", "y"})) return nullptr;
  return choose_value(s["a"].dtype, []<class T>() -> Kernel { return add_parts<T>; });
}

Kernel select_take_part(const OpShape& shape) {
  const ShapeOf<ops::TakePart> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  if (s["x"].dtype == DType::i32) return take_part<std::int32_t>;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return take_part<T>; });
}

Kernel select_pair(const OpShape& shape) {
  const ShapeOf<ops::Pair> s(shape);
  if (!same_type(s, {"a", "b", "y"})) return nullptr;
  return choose_value(s["a"].dtype, []<class T>() -> Kernel { return pair<T>; });
}

Kernel select_half(const OpShape& shape) {
  const ShapeOf<ops::Half> s(shape);
  if (!same_type(s, {"pair", "y"})) return nullptr;
  return choose_value(s["pair"].dtype, []<class T>() -> Kernel { return half<T>; });
}

}  // namespace

std::vector<KernelDef> parts_kernels();
std::vector<KernelDef> parts_kernels() {
  return {{ops::AddParts::kind, select_add_parts},
          {ops::TakePart::kind, select_take_part},
          {ops::Pair::kind, select_pair},
          {ops::Half::kind, select_half}};
}

}  // namespace prun::cpu::PRUN_ISA
