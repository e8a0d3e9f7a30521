// Launches the coding of numbers in blocks, and the sums of numbers in code.
#include "coded/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/coded.hpp"

namespace prun::cuda {
namespace {

template <class T>
void encode(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Encode> op(args);
  cuda::encode(op["x"].as<const T>(), op["codes"].data, op["x"].elements(), codes_of_bits(op.integer("bits")),
               {}, stream_of(context));
}

template <class T>
void encode_onward(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeOnward> op(args);
  cuda::encode(op["x"].as<const T>(), op["codes"].data, op["x"].elements(), codes_of_bits(op.integer("bits")),
               {op["error"].as<Compute<T>>(), op["keep"].as<const double>()}, stream_of(context));
}

template <class T>
void decode(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Decode> op(args);
  cuda::decode(op["codes"].data, op["y"].as<T>(), op["y"].elements(), codes_of_bits(op.integer("bits")),
               stream_of(context));
}

template <class T>
void encode_fp8(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8> op(args);
  cuda::encode(op["x"].as<const T>(), op["codes"].data, op["x"].elements(), Codes::e4m3, {},
               stream_of(context));
}

template <class T>
void decode_fp8(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DecodeFp8> op(args);
  cuda::decode(op["codes"].data, op["y"].as<T>(), op["y"].elements(), Codes::e4m3, stream_of(context));
}

template <class T>
void sum_decoded(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SumDecoded> op(args);
  cuda::sum_decoded(op["codes"].data, op["y"].as<T>(), op["y"].elements(), op["codes"].dim[0],
                    codes_of_bits(op.integer("bits")), stream_of(context));
}

Kernel select_encode(const OpShape& shape) {
  const ShapeOf<ops::Encode> s(shape);
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return encode<T>; });
}
Kernel select_onward(const OpShape& shape) {
  const ShapeOf<ops::EncodeOnward> s(shape);
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return encode_onward<T>; });
}
Kernel select_decode(const OpShape& shape) {
  const ShapeOf<ops::Decode> s(shape);
  return by_value(s["y"].dtype, []<class T>() -> Kernel { return decode<T>; });
}
Kernel select_sum_decoded(const OpShape& shape) {
  const ShapeOf<ops::SumDecoded> s(shape);
  return by_value(s["y"].dtype, []<class T>() -> Kernel { return sum_decoded<T>; });
}
Kernel select_encode_fp8(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8> s(shape);
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return encode_fp8<T>; });
}
Kernel select_decode_fp8(const OpShape& shape) {
  const ShapeOf<ops::DecodeFp8> s(shape);
  return by_value(s["y"].dtype, []<class T>() -> Kernel { return decode_fp8<T>; });
}

}  // namespace

std::vector<DeviceOp> coded_ops(const OpChoices&) {
  return {{{ops::Encode::kind, select_encode}},        {{ops::EncodeOnward::kind, select_onward}},
          {{ops::Decode::kind, select_decode}},        {{ops::SumDecoded::kind, select_sum_decoded}},
          {{ops::EncodeFp8::kind, select_encode_fp8}}, {{ops::DecodeFp8::kind, select_decode_fp8}}};
}

}  // namespace prun::cuda
