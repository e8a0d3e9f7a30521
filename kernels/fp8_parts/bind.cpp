// Launches peak_fp8_squares and encode_fp8_part.
#include "fp8_parts/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/fp8_parts.hpp"

namespace prun::cuda {
namespace {

template <class Op>
MatrixInPart matrix_in(const ArgsOf<Op>& op) {
  const Tensor& x = op["x"];
  const std::int64_t from = x.start[0] - op.integer("first");
  return {op.integer("rows"), op.integer("columns"), from, from + x.elements()};
}

template <class Op>
float* peaks_of(const ArgsOf<Op>& op) {
  const Tensor& peaks = op["peaks"];
  return peaks.as<float>() + op.integer("place");
}

template <class T>
void launch_peak(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PeakFp8Squares> op(args);
  peak_fp8_squares(op["x"].as<const T>(), matrix_in(op), peaks_of(op), stream_of(context));
}

template <class T>
void launch_encode(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8Part> op(args);
  encode_fp8_part(op["x"].as<const T>(), matrix_in(op), peaks_of(op), op["codes"].as<std::uint8_t>(),
                  stream_of(context));
}

// Chooses for the types that products in fp8 have here.
template <class Choice>
Kernel of_part(const OperandShape& x, Choice choice) {
  return by_value(x.dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return choice.template operator()<T>();
  });
}

Kernel select_peak(const OpShape& shape) {
  return of_part(ShapeOf<ops::PeakFp8Squares>(shape)["x"],
                 []<class T>() -> Kernel { return launch_peak<T>; });
}

Kernel select_encode_part(const OpShape& shape) {
  return of_part(ShapeOf<ops::EncodeFp8Part>(shape)["x"],
                 []<class T>() -> Kernel { return launch_encode<T>; });
}

}  // namespace

std::vector<DeviceOp> fp8_parts_ops(const OpChoices&) {
  return {{{ops::PeakFp8Squares::kind, select_peak}}, {{ops::EncodeFp8Part::kind, select_encode_part}}};
}

}  // namespace prun::cuda
