// Launches zero, copy and checksum, for bytes of any type, to and from pinned memory as well.
#include "cuda/memory.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

std::int64_t bytes_of(const Tensor& x) { return x.elements() * size_of(x.dtype); }

void zero(const KernelArgs& args, const KernelContext& context) {
  cuda::zero(args.operands[0].data, bytes_of(args.operands[0]), stream_of(context));
}

void copy(const KernelArgs& args, const KernelContext& context) {
  cuda::copy(args.operands[0].data, args.operands[1].data, bytes_of(args.operands[0]), stream_of(context));
}

void checksum(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &sums = args.operands[1];
  cuda::checksum(x.data, x.elements(), size_of(x.dtype), sums.as<std::uint64_t>(), sums.elements(),
                 stream_of(context));
}

Kernel select_zero(const OpShape&) { return zero; }

Kernel select_copy(const OpShape& s) {
  return s.operand[0].bytes() == s.operand[1].bytes() && same_type(s, {0, 1}) ? copy : nullptr;
}

Kernel select_checksum(const OpShape&) { return checksum; }

}  // namespace

std::vector<DeviceOp> memory_ops(const OpChoices&) {
  return {{{"zero", select_zero}},
          {{"copy", select_copy}},
          {{"whole_logits", select_copy}},
          {{"total", select_copy}},
          {{"checksum", select_checksum}}};
}

}  // namespace prun::cuda
