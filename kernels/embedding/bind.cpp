// Launches embedding and add_position, and the gradients of their tables.
#include "embedding/cuda.hpp"

#include "memory/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/embedding.hpp"

namespace prun::cuda {
namespace {

template <class T>
void embedding(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Embedding> op(args);
  const Tensor &tokens = op["tokens"], &table = op["table"];
  cuda::embedding<T>(op["tokens"].as<const std::int32_t>(), op["table"].as<const T>(), nullptr,
                     op["y"].as<T>(), tokens.elements(), tokens.inner(1), table.dim[1], table.dim[0],
                     table.start[0], stream_of(context));
}

template <class T, class S>
void embedding_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EmbeddingWeightGrad> op(args);
  const Tensor& dtable = op["dtable"];
  cuda::embedding_weight_grad(op["tokens"].as<const std::int32_t>(), op["dy"].as<const T>(),
                              op["dtable"].as<S>(), op["tokens"].elements(), dtable.dim[1], dtable.dim[0],
                              dtable.start[0], op.integer("padding"), args.workspace, stream_of(context));
}

std::int64_t embedding_weight_grad_workspace_of(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::EmbeddingWeightGrad> s(shape);
  const OperandShape& dtable = s["dtable"];
  return by_value(s["dy"].dtype, [&]<class T>() -> std::int64_t {
    return embedding_weight_grad_workspace<T>(s["tokens"].elements(), dtable.dims[1].extent);
  });
}

// Returns the rows of a table of positions from that of x's first position on; all rows where `positions`
// names the position of each.
template <class T>
T* rows_at(T* table, const Tensor& shape, const Tensor& x, const Tensor& positions) {
  return positions.data ? table : table + (x.start[1] - shape.start[0]) * shape.dim[1];
}

template <class T>
void add_position(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddPosition> op(args);
  const Tensor &x = op["x"], &table = op["table"];
  cuda::add_position(op["x"].as<const T>(), rows_at(op["table"].as<const T>(), table, x, op["positions"]),
                     op["positions"].as<const std::int32_t>(), op["y"].as<T>(), x.dim[0], x.dim[1], x.dim[2],
                     stream_of(context));
}

template <class T>
void add_position_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AddPositionAt> op(args);
  const Tensor& x = op["x"];
  cuda::add_position_at(op["x"].as<const T>(), op["table"].as<const T>(), op["position"].as<const double>(),
                        op["y"].as<T>(), x.dim[0], x.dim[1], x.dim[2], op["table"].dim[0],
                        stream_of(context));
}

// Where the sum begins here, rows that no position of this launch belongs to are cleared.
template <class T, class S>
void position_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PositionWeightGrad> op(args);
  const Tensor &dy = op["dy"], &dtable = op["dtable"];
  S* const sums = rows_at(op["dtable"].as<S>(), dtable, dy, op["positions"]);
  const bool begins = op.begins("dtable");
  if (begins && dy.dim[1] < dtable.dim[0])
    zero(dtable.data, dtable.elements() * static_cast<std::int64_t>(sizeof(S)), stream_of(context));
  cuda::position_weight_grad<T, S>(op["dy"].as<const T>(), {sums, begins},
                                   op["positions"].as<const std::int32_t>(), dy.dim[0], dy.dim[1], dy.dim[2],
                                   stream_of(context));
}

Kernel select_embedding(const OpShape& shape) {
  const ShapeOf<ops::Embedding> s(shape);
  if (s["tokens"].dtype != DType::i32 || !same_type(s, {"table", "y"})) return nullptr;
  return by_value(s["table"].dtype, []<class T>() -> Kernel { return embedding<T>; });
}

Kernel select_embedding_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::EmbeddingWeightGrad> s(shape);
  if (s["tokens"].dtype != DType::i32) return nullptr;
  return by_sum(s, "dy", {"dtable"},
                []<class T, class S>() -> Kernel { return embedding_weight_grad<T, S>; });
}

Kernel select_add_position(const OpShape& shape) {
  const ShapeOf<ops::AddPosition> s(shape);
  if (!same_type(s, {"x", "table", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return add_position<T>; });
}

Kernel select_add_position_at(const OpShape& shape) {
  const ShapeOf<ops::AddPositionAt> s(shape);
  if (!same_type(s, {"x", "table", "y"}) || !all_double(s, {"position"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return add_position_at<T>; });
}

Kernel select_position_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::PositionWeightGrad> s(shape);
  return by_sum(s, "dy", {"dtable"}, []<class T, class S>() -> Kernel { return position_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> embedding_ops(const OpChoices&) {
  return {
      {{ops::Embedding::kind, select_embedding}},
      {{ops::EmbeddingWeightGrad::kind, select_embedding_weight_grad, embedding_weight_grad_workspace_of}},
      {{ops::AddPosition::kind, select_add_position}},
      {{ops::AddPositionAt::kind, select_add_position_at}},
      {{ops::PositionWeightGrad::kind, select_position_weight_grad, nullptr,
        bits_of<ops::PositionWeightGrad>("dtable")}}};
}

}  // namespace prun::cuda
