// Launches router and its gradients.
#include "cuda/router.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void router(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &weight = args.operands[1];
  cuda::router<T>(x.as<const T>(), weight.as<const T>(), data<Compute<T>>(args, 2),
                  {x.outer(1), weight.dim[0], weight.dim[1]}, static_cast<Compute<T>*>(args.workspace),
                  stream_of(context));
}

template <class T>
void router_input_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor &dlogits = args.operands[0], &weight = args.operands[1];
  cuda::router_input_grad<T>(dlogits.as<const Compute<T>>(), weight.as<const T>(), data<T>(args, 2),
                             {dlogits.outer(1), weight.dim[0], weight.dim[1]}, stream_of(context));
}

template <class T, class S>
void router_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &dweight = args.operands[2];
  cuda::router_weight_grad<T, S>(x.as<const T>(), data<const Compute<T>>(args, 1), sum_in<S>(args, 2),
                                 {x.outer(1), dweight.dim[0], dweight.dim[1]},
                                 static_cast<Compute<T>*>(args.workspace), stream_of(context));
}

Kernel select_router(const OpShape& s) {
  if (!same_type(s, {0, 1}) || !computed_type(s, s.operand[0].dtype, {2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return router<T>; });
}

Kernel select_router_input_grad(const OpShape& s) {
  if (!same_type(s, {1, 2}) || !computed_type(s, s.operand[1].dtype, {0})) return nullptr;
  return by_value(s.operand[1].dtype, []<class T>() -> Kernel { return router_input_grad<T>; });
}

Kernel select_router_weight_grad(const OpShape& s) {
  if (!computed_type(s, s.operand[0].dtype, {1})) return nullptr;
  return by_sum(s, 0, {2}, []<class T, class S>() -> Kernel { return router_weight_grad<T, S>; });
}

// `x` is the values' shape, `weight` that of the weight or its gradient.
RouterShape router_shape(const OperandShape& x, const OperandShape& weight) {
  std::int64_t rows = 1;
  for (int d = 0; d < x.rank - 1; ++d) rows *= x.dims[d].extent;
  return {rows, weight.dims[0].extent, weight.dims[1].extent};
}

std::int64_t router_room(const OpShape& s, std::int32_t) {
  return router_workspace(router_shape(s.operand[0], s.operand[1]), size_of(s.operand[2].dtype));
}

std::int64_t router_weight_grad_room(const OpShape& s, std::int32_t) {
  return router_weight_grad_workspace(router_shape(s.operand[0], s.operand[2]), size_of(s.operand[1].dtype));
}

}  // namespace

std::vector<DeviceOp> router_ops(const OpChoices&) {
  return {{{"router", select_router, router_room}},
          {{"router_input_grad", select_router_input_grad}},
          {{"router_weight_grad", select_router_weight_grad, router_weight_grad_room, 1u << 2}}};
}

}  // namespace prun::cuda
