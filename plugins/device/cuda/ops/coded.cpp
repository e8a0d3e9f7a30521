// Launches the coding of numbers in blocks, and the sums of numbers in code.
#include "cuda/coded.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

Codes form_of(const KernelArgs& args) { return codes_of_bits(args.attrs[0].i); }

template <class T>
void encode(const KernelArgs& args, const KernelContext& context) {
  cuda::encode(data<const T>(args, 0), args.operands[1].data, args.operands[0].elements(), form_of(args), {},
               stream_of(context));
}

template <class T>
void encode_onward(const KernelArgs& args, const KernelContext& context) {
  cuda::encode(data<const T>(args, 0), args.operands[3].data, args.operands[0].elements(), form_of(args),
               {data<Compute<T>>(args, 1), data<const double>(args, 2)}, stream_of(context));
}

template <class T>
void decode(const KernelArgs& args, const KernelContext& context) {
  cuda::decode(args.operands[0].data, data<T>(args, 1), args.operands[1].elements(), form_of(args),
               stream_of(context));
}

template <class T>
void encode_fp8(const KernelArgs& args, const KernelContext& context) {
  cuda::encode(data<const T>(args, 0), args.operands[1].data, args.operands[0].elements(), Codes::e4m3, {},
               stream_of(context));
}

template <class T>
void decode_fp8(const KernelArgs& args, const KernelContext& context) {
  cuda::decode(args.operands[0].data, data<T>(args, 1), args.operands[1].elements(), Codes::e4m3,
               stream_of(context));
}

template <class T>
void sum_decoded(const KernelArgs& args, const KernelContext& context) {
  cuda::sum_decoded(args.operands[0].data, data<T>(args, 1), args.operands[1].elements(),
                    args.operands[0].dim[0], form_of(args), stream_of(context));
}

Kernel select_encode(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode<T>; });
}
Kernel select_onward(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode_onward<T>; });
}
Kernel select_decode(const OpShape& s) {
  return by_value(s.operand[1].dtype, []<class T>() -> Kernel { return decode<T>; });
}
Kernel select_sum_decoded(const OpShape& s) {
  return by_value(s.operand[1].dtype, []<class T>() -> Kernel { return sum_decoded<T>; });
}
Kernel select_encode_fp8(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode_fp8<T>; });
}
Kernel select_decode_fp8(const OpShape& s) {
  return by_value(s.operand[1].dtype, []<class T>() -> Kernel { return decode_fp8<T>; });
}

}  // namespace

std::vector<DeviceOp> coded_ops(const OpChoices&) {
  return {{{"encode", select_encode}},         {{"encode_onward", select_onward}},
          {{"decode", select_decode}},         {{"sum_decoded", select_sum_decoded}},
          {{"encode_fp8", select_encode_fp8}}, {{"decode_fp8", select_decode_fp8}}};
}

}  // namespace prun::cuda
