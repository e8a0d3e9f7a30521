// Launches route and its gradient.
#include "cuda/route.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

RouteShape shape_of(const KernelArgs& args, int index) {
  const Tensor &logits = args.operands[0], &chosen = args.operands[index];
  return {.positions = logits.outer(1),
          .routes = logits.inner(1),
          .choices = chosen.inner(1),
          .sigmoid = args.attrs[0].i != 0,
          .normalise = args.attrs[1].i != 0,
          .scale = args.attrs[2].f};
}

template <class C>
void route(const KernelArgs& args, const KernelContext& context) {
  RouteShape shape = shape_of(args, 2);
  shape.groups = args.attrs[4].i;
  shape.chosen_groups = args.attrs[5].i;
  shape.group_best = args.attrs[6].i;
  cuda::route<C>(data<const C>(args, 0), data<const C>(args, 1), data<std::int32_t>(args, 2),
                 data<C>(args, 3), shape, stream_of(context));
}

template <class C>
void route_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::route_grad<C>(data<const C>(args, 0), data<const std::int32_t>(args, 1), data<const C>(args, 2),
                      data<C>(args, 3), shape_of(args, 1), stream_of(context));
}

bool fits(const OpShape& s) {
  const OperandShape& logits = s.operand[0];
  return routes_fit(logits.dims[logits.rank - 1].extent, size_of(logits.dtype));
}

Kernel select_route(const OpShape& s) {
  if (!same_type(s, {0, 1, 3}) || s.operand[2].dtype != DType::i32 || !fits(s)) return nullptr;
  return s.operand[0].dtype == DType::f64   ? route<double>
         : s.operand[0].dtype == DType::f32 ? route<float>
                                            : nullptr;
}

Kernel select_route_grad(const OpShape& s) {
  if (!same_type(s, {0, 2, 3}) || s.operand[1].dtype != DType::i32 || !fits(s)) return nullptr;
  return s.operand[0].dtype == DType::f64   ? route_grad<double>
         : s.operand[0].dtype == DType::f32 ? route_grad<float>
                                            : nullptr;
}

}  // namespace

std::vector<DeviceOp> route_ops(const OpChoices&) {
  return {{{"route", select_route}}, {{"route_grad", select_route_grad}}};
}

}  // namespace prun::cuda
