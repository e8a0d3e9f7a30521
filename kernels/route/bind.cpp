// Launches route and its gradient.
#include "route/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/route.hpp"

namespace prun::cuda {
namespace {

template <class Op>
RouteShape shape_of(const ArgsOf<Op>& op) {
  const Tensor &logits = op["logits"], &chosen = op["index"];
  return {.positions = logits.outer(1),
          .routes = logits.inner(1),
          .choices = chosen.inner(1),
          .sigmoid = op.integer("sigmoid") != 0,
          .normalise = op.integer("normalise") != 0,
          .scale = op.real("scale")};
}

template <class C>
void route(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Route> op(args);
  RouteShape shape = shape_of(op);
  shape.groups = op.integer("groups");
  shape.chosen_groups = op.integer("chosen_groups");
  shape.group_best = op.integer("group_best");
  cuda::route<C>(op["logits"].as<const C>(), op["bias"].as<const C>(), op["index"].as<std::int32_t>(),
                 op["weight"].as<C>(), shape, stream_of(context));
}

template <class C>
void route_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RouteGrad> op(args);
  cuda::route_grad<C>(op["logits"].as<const C>(), op["index"].as<const std::int32_t>(),
                      op["dweight"].as<const C>(), op["dlogits"].as<C>(), shape_of(op), stream_of(context));
}

bool fits(const OperandShape& logits) {
  return routes_fit(logits.dims[logits.rank - 1].extent, size_of(logits.dtype));
}

Kernel select_route(const OpShape& shape) {
  const ShapeOf<ops::Route> s(shape);
  if (!same_type(s, {"logits", "bias", "weight"}) || s["index"].dtype != DType::i32 || !fits(s["logits"]))
    return nullptr;
  return s["logits"].dtype == DType::f64   ? route<double>
         : s["logits"].dtype == DType::f32 ? route<float>
                                           : nullptr;
}

Kernel select_route_grad(const OpShape& shape) {
  const ShapeOf<ops::RouteGrad> s(shape);
  if (!same_type(s, {"logits", "dweight", "dlogits"}) || s["index"].dtype != DType::i32 || !fits(s["logits"]))
    return nullptr;
  return s["logits"].dtype == DType::f64   ? route_grad<double>
         : s["logits"].dtype == DType::f32 ? route_grad<float>
                                           : nullptr;
}

}  // namespace

std::vector<DeviceOp> route_ops(const OpChoices&) {
  return {{{ops::Route::kind, select_route}}, {{ops::RouteGrad::kind, select_route_grad}}};
}

}  // namespace prun::cuda
