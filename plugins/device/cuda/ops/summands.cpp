// Launches the ops of updates that ranks sum: rows of summands, what is mixed into each, and the direction of
// their sum.
#include "cuda/summands.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

void keep_summand(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &rows = args.operands[1];
  cuda::keep_summand(x.data, rows.data, x.elements() * size_of(x.dtype), rows.elements() / x.elements(),
                     stream_of(context));
}

template <class T>
void momentum_summand(const KernelArgs& args, const KernelContext& context) {
  cuda::momentum_summand<T>(
      {data<const T>(args, 0), data<const Compute<T>>(args, 1), data<const double>(args, 2),
       data<Compute<T>>(args, 3), args.operands[0].elements(), args.operands[1].elements(), args.attrs[0].f,
       args.attrs[1].i},
      stream_of(context));
}

template <class C>
void frozen_direction(const KernelArgs& args, const KernelContext& context) {
  cuda::frozen_direction<C>(
      {data<const C>(args, 0), data<C>(args, 1), data<const C>(args, 2), data<const double>(args, 3),
       data<C>(args, 4), args.operands[1].elements(), args.attrs[0].f, args.attrs[1].f, args.attrs[2].i},
      stream_of(context));
}

Kernel select_keep_summand(const OpShape& s) {
  return s.operand[0].bytes() % 4 == 0 ? keep_summand : nullptr;
}

Kernel select_momentum_summand(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return momentum_summand<T>; });
}

Kernel select_frozen_direction(const OpShape& s) {
  return s.operand[0].dtype == DType::f64   ? Kernel(frozen_direction<double>)
         : s.operand[0].dtype == DType::f32 ? Kernel(frozen_direction<float>)
                                            : nullptr;
}

}  // namespace

std::vector<DeviceOp> summands_ops(const OpChoices&) {
  return {{{"keep_summand", select_keep_summand}},
          {{"momentum_summand", select_momentum_summand}},
          {{"frozen_direction", select_frozen_direction}}};
}

}  // namespace prun::cuda
