// Launches halt_beyond.
#include "bound/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/bound.hpp"

namespace prun::cuda {
namespace {

void halt_beyond(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::HaltBeyond> op(args);
  cuda::halt_beyond(op["needed"].as<const double>(), op["needed"].dim[0], op["halt"].as<double>(),
                    stream_of(context));
}

Kernel select_halt_beyond(const OpShape& shape) {
  const ShapeOf<ops::HaltBeyond> s(shape);
  return have_type(s, DType::f64, {"needed", "halt"}) ? halt_beyond : nullptr;
}

}  // namespace

std::vector<DeviceOp> bound_ops(const OpChoices&) { return {{{ops::HaltBeyond::kind, select_halt_beyond}}}; }

}  // namespace prun::cuda
