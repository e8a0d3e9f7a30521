// Launches zero, copy and checksum, for bytes of any type, to and from pinned memory as well.
#include "memory/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/memory.hpp"

namespace prun::cuda {
namespace {

std::int64_t bytes_of(const Tensor& x) { return x.elements() * size_of(x.dtype); }

void zero(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Zero> op(args);
  cuda::zero(op["x"].data, bytes_of(op["x"]), stream_of(context));
}

template <class Op>
void copy(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  cuda::copy(op["x"].data, op["y"].data, bytes_of(op["x"]), stream_of(context));
}

void checksum(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Checksum> op(args);
  const Tensor &x = op["x"], &sums = op["sums"];
  cuda::checksum(x.data, x.elements(), size_of(x.dtype), sums.as<std::uint64_t>(), sums.elements(),
                 stream_of(context));
}

Kernel select_zero(const OpShape&) { return zero; }

template <class Op>
Kernel select_copy(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  return s["x"].bytes() == s["y"].bytes() && same_type(s, {"x", "y"}) ? copy<Op> : nullptr;
}

Kernel select_checksum(const OpShape&) { return checksum; }

}  // namespace

std::vector<DeviceOp> memory_ops(const OpChoices&) {
  return {{{ops::Zero::kind, select_zero}},
          {{ops::Copy::kind, select_copy<ops::Copy>}},
          {{ops::WholeLogits::kind, select_copy<ops::WholeLogits>}},
          {{ops::Total::kind, select_copy<ops::Total>}},
          {{ops::Checksum::kind, select_checksum}}};
}

}  // namespace prun::cuda
