// Launches embedding and add_position, and the gradients of their tables.
#include "cuda/embedding.hpp"

#include "cuda/memory.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void embedding(const KernelArgs& args, const KernelContext& context) {
  const Tensor &tokens = args.operands[0], &table = args.operands[1];
  cuda::embedding<T>(data<const std::int32_t>(args, 0), data<const T>(args, 1), nullptr, data<T>(args, 2),
                     tokens.elements(), tokens.inner(1), table.dim[1], table.dim[0], table.start[0],
                     stream_of(context));
}

template <class T, class S>
void embedding_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor& dtable = args.operands[2];
  cuda::embedding_weight_grad(data<const std::int32_t>(args, 0), data<const T>(args, 1), data<S>(args, 2),
                              args.operands[0].elements(), dtable.dim[1], dtable.dim[0], dtable.start[0],
                              args.attrs[0].i, args.workspace, stream_of(context));
}

std::int64_t embedding_weight_grad_workspace_of(const OpShape& s, std::int32_t) {
  const OperandShape& dtable = s.operand[2];
  return by_value(s.operand[1].dtype, [&]<class T>() -> std::int64_t {
    return embedding_weight_grad_workspace<T>(s.operand[0].elements(), dtable.dims[1].extent);
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
  const Tensor &x = args.operands[0], &table = args.operands[1];
  cuda::add_position(data<const T>(args, 0), rows_at(data<const T>(args, 1), table, x, args.operands[3]),
                     data<const std::int32_t>(args, 3), data<T>(args, 2), x.dim[0], x.dim[1], x.dim[2],
                     stream_of(context));
}

template <class T>
void add_position_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  cuda::add_position_at(data<const T>(args, 0), data<const T>(args, 1), data<const double>(args, 2),
                        data<T>(args, 3), x.dim[0], x.dim[1], x.dim[2], args.operands[1].dim[0],
                        stream_of(context));
}

// Where the sum begins here, rows that no position of this launch belongs to are cleared.
template <class T, class S>
void position_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor &dy = args.operands[0], &dtable = args.operands[2];
  S* const sums = rows_at(data<S>(args, 2), dtable, dy, args.operands[1]);
  const bool begins = args.begins(2);
  if (begins && dy.dim[1] < dtable.dim[0])
    zero(dtable.data, dtable.elements() * static_cast<std::int64_t>(sizeof(S)), stream_of(context));
  cuda::position_weight_grad<T, S>(data<const T>(args, 0), {sums, begins}, data<const std::int32_t>(args, 1),
                                   dy.dim[0], dy.dim[1], dy.dim[2], stream_of(context));
}

Kernel select_embedding(const OpShape& s) {
  if (s.operand[0].dtype != DType::i32 || !same_type(s, {1, 2})) return nullptr;
  return by_value(s.operand[1].dtype, []<class T>() -> Kernel { return embedding<T>; });
}

Kernel select_embedding_weight_grad(const OpShape& s) {
  if (s.operand[0].dtype != DType::i32) return nullptr;
  return by_sum(s, 1, {2}, []<class T, class S>() -> Kernel { return embedding_weight_grad<T, S>; });
}

Kernel select_add_position(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_position<T>; });
}

Kernel select_add_position_at(const OpShape& s) {
  if (!same_type(s, {0, 1, 3}) || !all_double(s, 2, 3)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_position_at<T>; });
}

Kernel select_position_weight_grad(const OpShape& s) {
  return by_sum(s, 0, {2}, []<class T, class S>() -> Kernel { return position_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> embedding_ops(const OpChoices&) {
  return {{{"embedding", select_embedding}},
          {{"embedding_weight_grad", select_embedding_weight_grad, embedding_weight_grad_workspace_of}},
          {{"add_position", select_add_position}},
          {{"add_position_at", select_add_position_at}},
          {{"position_weight_grad", select_position_weight_grad, nullptr, 1u << 2}}};
}

}  // namespace prun::cuda
