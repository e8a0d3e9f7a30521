// Launches count_fp8_codes and peak_fp8_scales.
#include "fp8_counts/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/fp8_counts.hpp"

namespace prun::cuda {
namespace {

template <class T>
using Count = void (*)(Fp8Blocks, const T*, std::int64_t, std::int64_t, const double*, double*, Stream);

template <class T, class Op>
void launch_count(Count<T> count, const KernelArgs& args, const Tensor& counts,
                  const KernelContext& context) {
  const ArgsOf<Op> op(args);
  if (!multiplies_in_fp8(args, attr_of<Op>("fp8"))) return;
  const Tensor &x = op["x"], &on = op["on"];
  const int in = static_cast<int>(op.integer("in_dims"));
  count(static_cast<Fp8Blocks>(op.integer("blocks")), x.as<const T>(), x.outer(in), x.inner(in),
        on.as<const double>(), counts.as<double>() + 3 * (op.integer("place") + args.layer),
        stream_of(context));
}

template <class T>
void count_fp8_codes(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CountFp8Codes> op(args);
  launch_count<T, ops::CountFp8Codes>(cuda::count_fp8_codes<T>, args, op["counts"], context);
}

template <class T>
void peak_fp8_scales(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PeakFp8Scales> op(args);
  launch_count<T, ops::PeakFp8Scales>(cuda::peak_fp8_scales<T>, args, op["peaks"], context);
}

// Chooses for the types that products in fp8 have here.
template <class Choice>
Kernel of_factor(const OperandShape& x, Choice choice) {
  return by_value(x.dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return choice.template operator()<T>();
  });
}

Kernel select_fp8_count(const OpShape& shape) {
  const ShapeOf<ops::CountFp8Codes> s(shape);
  if (!have_type(s, DType::f64, {"on", "counts"})) return nullptr;
  return of_factor(s["x"], []<class T>() -> Kernel { return count_fp8_codes<T>; });
}

Kernel select_fp8_peak(const OpShape& shape) {
  const ShapeOf<ops::PeakFp8Scales> s(shape);
  if (!have_type(s, DType::f64, {"on", "peaks"})) return nullptr;
  return of_factor(s["x"], []<class T>() -> Kernel { return peak_fp8_scales<T>; });
}

}  // namespace

std::vector<DeviceOp> fp8_counts_ops(const OpChoices&) {
  return {{{ops::CountFp8Codes::kind, select_fp8_count}}, {{ops::PeakFp8Scales::kind, select_fp8_peak}}};
}

}  // namespace prun::cuda
