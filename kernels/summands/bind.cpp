// Launches the ops of updates that ranks sum: rows of summands, what is mixed into each, and the direction of
// their sum.
#include "summands/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/summands.hpp"

namespace prun::cuda {
namespace {

void keep_summand(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::KeepSummand> op(args);
  const Tensor &x = op["x"], &rows = op["summands"];
  cuda::keep_summand(x.data, rows.data, x.elements() * size_of(x.dtype), rows.elements() / x.elements(),
                     stream_of(context));
}

template <class T>
void momentum_summand(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::MomentumSummand> op(args);
  cuda::momentum_summand<T>(
      {op["gradient"].as<const T>(), op["m"].as<const Compute<T>>(), op["clip"].as<const double>(),
       op["summand"].as<Compute<T>>(), op["gradient"].elements(), op["m"].elements(), op.real("beta"),
       op.integer("summands")},
      stream_of(context));
}

template <class C>
void frozen_direction(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::FrozenDirection> op(args);
  cuda::frozen_direction<C>(
      {op["sum"].as<const C>(), op["m"].as<C>(), op["v"].as<const C>(), op["keep"].as<const double>(),
       op["direction"].as<C>(), op["m"].elements(), op.real("eps"), op.real("beta"), op.integer("frozen_at")},
      stream_of(context));
}

Kernel select_keep_summand(const OpShape& shape) {
  const ShapeOf<ops::KeepSummand> s(shape);
  return s["x"].bytes() % 4 == 0 ? keep_summand : nullptr;
}

Kernel select_momentum_summand(const OpShape& shape) {
  const ShapeOf<ops::MomentumSummand> s(shape);
  return by_value(s["gradient"].dtype, []<class T>() -> Kernel { return momentum_summand<T>; });
}

Kernel select_frozen_direction(const OpShape& shape) {
  const ShapeOf<ops::FrozenDirection> s(shape);
  return s["sum"].dtype == DType::f64   ? Kernel(frozen_direction<double>)
         : s["sum"].dtype == DType::f32 ? Kernel(frozen_direction<float>)
                                        : nullptr;
}

}  // namespace

std::vector<DeviceOp> summands_ops(const OpChoices&) {
  return {{{ops::KeepSummand::kind, select_keep_summand}},
          {{ops::MomentumSummand::kind, select_momentum_summand}},
          {{ops::FrozenDirection::kind, select_frozen_direction}}};
}

}  // namespace prun::cuda
