// Launches experts and its gradients, whose halves the device computes together where they follow each other.
#include "cuda/experts.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

ExpertsShape shape_of(const KernelArgs& args) {
  const Tensor &index = args.operands[1], &up = args.operands[3];
  return {index.outer(1), index.inner(1), up.dim[0], up.start[0], up.dim[3], up.dim[2]};
}

template <class T>
ExpertsInputs<T> inputs(const KernelArgs& args) {
  return {data<const T>(args, 0),          data<const std::int32_t>(args, 1),
          data<const Compute<T>>(args, 2), data<const T>(args, 3),
          data<const T>(args, 4),          data<T>(args, 6)};
}

template <class T>
void experts(const KernelArgs& args, const KernelContext& context) {
  cuda::experts<T>(inputs<T>(args), data<T>(args, 5), shape_of(args), args.workspace, stream_of(context));
}

template <class T>
void experts_grad(const KernelArgs& args, const KernelContext& context) {
  const ExpertsGradients<T> out{data<T>(args, 7), data<Compute<T>>(args, 8)};
  cuda::experts_grads<T, Compute<T>>(inputs<T>(args), data<const T>(args, 5), out, shape_of(args),
                                     args.workspace, stream_of(context));
}

template <class T, class S>
void experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ExpertsGradients<T, S> out{nullptr, nullptr, sum_in<S>(args, 7), sum_in<S>(args, 8)};
  cuda::experts_grads<T, S>(inputs<T>(args), data<const T>(args, 5), out, shape_of(args), args.workspace,
                            stream_of(context));
}

template <class T, class S>
void experts_grads(const KernelArgs& args, const KernelContext& context) {
  const ExpertsGradients<T, S> out{data<T>(args, 7), data<Compute<T>>(args, 8), sum_in<S>(args, 9),
                                   sum_in<S>(args, 10)};
  cuda::experts_grads<T, S>(inputs<T>(args), data<const T>(args, 5), out, shape_of(args), args.workspace,
                            stream_of(context));
}

bool operand_types(const OpShape& s) {
  return same_type(s, {0, 3, 4, 5}) && (!s.operand[6].present || same_type(s, {0, 6})) &&
         s.operand[1].dtype == DType::i32 && computed_type(s, s.operand[0].dtype, {2});
}

Kernel select_experts(const OpShape& s) {
  if (!operand_types(s)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts<T>; });
}

Kernel select_experts_grad(const OpShape& s) {
  if (!operand_types(s) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

Kernel select_experts_weight_grad(const OpShape& s) {
  if (!operand_types(s)) return nullptr;
  return by_sum(s, 0, {7, 8}, []<class T, class S>() -> Kernel { return experts_weight_grad<T, S>; });
}

Kernel select_experts_grads(const OpShape& s) {
  if (!operand_types(s) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return by_sum(s, 0, {9, 10}, []<class T, class S>() -> Kernel { return experts_grads<T, S>; });
}

template <bool gradients>
std::int64_t experts_room(const OpShape& s, std::int32_t) {
  const OperandShape &index = s.operand[1], &up = s.operand[3];
  const std::int64_t choices = index.dims[index.rank - 1].extent;
  const ExpertsShape shape{index.elements() / choices, choices,          up.dims[0].extent, 0,
                           up.dims[3].extent,          up.dims[2].extent};
  return cuda::experts_workspace(shape, size_of(s.operand[0].dtype), gradients, s.operand[6].present);
}

}  // namespace

std::vector<DeviceOp> experts_ops(const OpChoices&) {
  return {{{"experts", select_experts, experts_room<false>}},
          {{"experts_grad", select_experts_grad, experts_room<true>}},
          {{"experts_weight_grad", select_experts_weight_grad, experts_room<true>, 3u << 7}},
          {{"experts_grads", select_experts_grads, experts_room<true>, 3u << 9}}};
}

}  // namespace prun::cuda
