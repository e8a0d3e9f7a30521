// Launches count_fp8_codes and peak_fp8_scales.
#include "cuda/fp8_counts.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
using Count = void (*)(Fp8Blocks, const T*, std::int64_t, std::int64_t, const double*, double*, Stream);

template <class T, Count<T> count>
void launch_count(const KernelArgs& args, const KernelContext& context) {
  if (!multiplies_in_fp8(args, 1)) return;
  const Tensor& x = args.operands[0];
  const int in = static_cast<int>(args.attrs[0].i);
  count(static_cast<Fp8Blocks>(args.attrs[4].i), data<const T>(args, 0), x.outer(in), x.inner(in),
        data<const double>(args, 1), data<double>(args, 2) + 3 * (args.attrs[5].i + args.layer),
        stream_of(context));
}

// Chooses for the types that products in fp8 have here.
template <class Choice>
Kernel of_factor(const OpShape& s, Choice choice) {
  if (!have_type(s, DType::f64, {1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return choice.template operator()<T>();
  });
}

Kernel select_fp8_count(const OpShape& s) {
  return of_factor(s, []<class T>() -> Kernel { return launch_count<T, cuda::count_fp8_codes<T>>; });
}

Kernel select_fp8_peak(const OpShape& s) {
  return of_factor(s, []<class T>() -> Kernel { return launch_count<T, cuda::peak_fp8_scales<T>>; });
}

}  // namespace

std::vector<DeviceOp> fp8_counts_ops(const OpChoices&) {
  return {{{"count_fp8_codes", select_fp8_count}}, {{"peak_fp8_scales", select_fp8_peak}}};
}

}  // namespace prun::cuda
