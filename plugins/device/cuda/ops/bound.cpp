// Launches halt_beyond.
#include "cuda/bound.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

void halt_beyond(const KernelArgs& args, const KernelContext& context) {
  cuda::halt_beyond(data<const double>(args, 0), args.operands[0].dim[0], data<double>(args, 1),
                    stream_of(context));
}

Kernel select_halt_beyond(const OpShape& s) {
  return have_type(s, DType::f64, {0, 1}) ? halt_beyond : nullptr;
}

}  // namespace

std::vector<DeviceOp> bound_ops(const OpChoices&) { return {{{"halt_beyond", select_halt_beyond}}}; }

}  // namespace prun::cuda
