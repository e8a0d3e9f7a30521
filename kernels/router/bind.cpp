// Launches router and its gradients.
#include "router/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/router.hpp"
#include "router/cuda_bias.hpp"

namespace prun::cuda {
namespace {

template <class T>
void router(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Router> op(args);
  const Tensor &x = op["x"], &weight = op["weight"];
  cuda::router<T>(x.as<const T>(), weight.as<const T>(), op["logits"].as<Compute<T>>(),
                  {x.outer(1), weight.dim[0], weight.dim[1]}, static_cast<Compute<T>*>(args.workspace),
                  stream_of(context));
  if (op.has("bias"))
    add_router_bias<T>(op["bias"].as<const T>(), op["logits"].as<Compute<T>>(), x.outer(1), weight.dim[0],
                       stream_of(context));
}

template <class T>
void router_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouterInputGrad> op(args);
  const Tensor &dlogits = op["dlogits"], &weight = op["weight"];
  cuda::router_input_grad<T>(dlogits.as<const Compute<T>>(), weight.as<const T>(), op["dx"].as<T>(),
                             {dlogits.outer(1), weight.dim[0], weight.dim[1]}, stream_of(context));
}

template <class T, class S>
void router_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouterWeightGrad> op(args);
  const Tensor &x = op["x"], &dweight = op["dweight"];
  cuda::router_weight_grad<T, S>(x.as<const T>(), op["dlogits"].as<const Compute<T>>(),
                                 sum_in<S>(op, "dweight"), {x.outer(1), dweight.dim[0], dweight.dim[1]},
                                 static_cast<Compute<T>*>(args.workspace), stream_of(context));
}

Kernel select_router(const OpShape& shape) {
  const ShapeOf<ops::Router> s(shape);
  if (!same_type(s, {"x", "weight"}) || !computed_type(s, s["x"].dtype, {"logits"})) return nullptr;
  if (s.has("bias") && !same_type(s, {"x", "bias"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return router<T>; });
}

Kernel select_router_input_grad(const OpShape& shape) {
  const ShapeOf<ops::RouterInputGrad> s(shape);
  if (!same_type(s, {"weight", "dx"}) || !computed_type(s, s["weight"].dtype, {"dlogits"})) return nullptr;
  return by_value(s["weight"].dtype, []<class T>() -> Kernel { return router_input_grad<T>; });
}

Kernel select_router_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::RouterWeightGrad> s(shape);
  if (!computed_type(s, s["x"].dtype, {"dlogits"})) return nullptr;
  return by_sum(s, "x", {"dweight"}, []<class T, class S>() -> Kernel { return router_weight_grad<T, S>; });
}

// `x` is the values' shape, `weight` that of the weight or its gradient.
RouterShape router_shape(const OperandShape& x, const OperandShape& weight) {
  std::int64_t rows = 1;
  for (int d = 0; d < x.rank - 1; ++d) rows *= x.dims[d].extent;
  return {rows, weight.dims[0].extent, weight.dims[1].extent};
}

std::int64_t router_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::Router> s(shape);
  return router_workspace(router_shape(s["x"], s["weight"]), size_of(s["logits"].dtype));
}

std::int64_t router_weight_grad_room(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::RouterWeightGrad> s(shape);
  return router_weight_grad_workspace(router_shape(s["x"], s["dweight"]), size_of(s["dlogits"].dtype));
}

}  // namespace

std::vector<DeviceOp> router_ops(const OpChoices&) {
  return {{{ops::Router::kind, select_router, router_room}},
          {{ops::RouterInputGrad::kind, select_router_input_grad}},
          {{ops::RouterWeightGrad::kind, select_router_weight_grad, router_weight_grad_room,
            bits_of<ops::RouterWeightGrad>("dweight")}}};
}

}  // namespace prun::cuda
