// Launches sigmoid_gate.
#include "gate/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/gate.hpp"

namespace prun::cuda {
namespace {

template <class T>
void sigmoid_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SigmoidGate> op(args);
  const Tensor& x = op["x"];
  cuda::sigmoid_gate<T>(x.as<const T>(), op["gate"].as<const T>(), op["y"].as<T>(), x.outer(1), x.inner(1),
                        stream_of(context));
}

template <class T>
void sigmoid_gate_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SigmoidGateGrad> op(args);
  const Tensor& x = op["x"];
  cuda::sigmoid_gate_grad<T>(op["dy"].as<const T>(), x.as<const T>(), op["gate"].as<const T>(),
                             op["dgate"].as<T>(), x.outer(1), x.inner(1), stream_of(context));
}

Kernel select_gate(const OpShape& shape) {
  const ShapeOf<ops::SigmoidGate> s(shape);
  if (!same_type(s, {"x", "gate", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return sigmoid_gate<T>; });
}

Kernel select_gate_grad(const OpShape& shape) {
  const ShapeOf<ops::SigmoidGateGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gate", "dgate"})) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return sigmoid_gate_grad<T>; });
}

}  // namespace

std::vector<DeviceOp> gate_ops(const OpChoices&) {
  return {{{ops::SigmoidGate::kind, select_gate}}, {{ops::SigmoidGateGrad::kind, select_gate_grad}}};
}

}  // namespace prun::cuda
