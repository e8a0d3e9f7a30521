// Launches peak_fp8_squares and encode_fp8_part.
#include "cuda/fp8_parts.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

MatrixInPart matrix_in(const KernelArgs& args) {
  const Tensor& x = args.operands[0];
  const std::int64_t from = x.start[0] - args.attrs[0].i;
  return {args.attrs[1].i, args.attrs[2].i, from, from + x.elements()};
}

float* peaks_of(const KernelArgs& args) { return data<float>(args, 1) + args.attrs[3].i; }

template <class T>
void launch_peak(const KernelArgs& args, const KernelContext& context) {
  peak_fp8_squares(data<const T>(args, 0), matrix_in(args), peaks_of(args), stream_of(context));
}

template <class T>
void launch_encode(const KernelArgs& args, const KernelContext& context) {
  encode_fp8_part(data<const T>(args, 0), matrix_in(args), peaks_of(args), data<std::uint8_t>(args, 2),
                  stream_of(context));
}

// Chooses for the types that products in fp8 have here.
template <class Choice>
Kernel of_part(const OpShape& s, Choice choice) {
  return by_value(s.operand[0].dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return choice.template operator()<T>();
  });
}

Kernel select_peak(const OpShape& s) {
  return of_part(s, []<class T>() -> Kernel { return launch_peak<T>; });
}

Kernel select_encode_part(const OpShape& s) {
  return of_part(s, []<class T>() -> Kernel { return launch_encode<T>; });
}

}  // namespace

std::vector<DeviceOp> fp8_parts_ops(const OpChoices&) {
  return {{{"peak_fp8_squares", select_peak}}, {{"encode_fp8_part", select_encode_part}}};
}

}  // namespace prun::cuda
