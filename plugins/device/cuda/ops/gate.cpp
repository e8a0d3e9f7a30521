// Launches sigmoid_gate.
#include "cuda/gate.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void sigmoid_gate(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  cuda::sigmoid_gate<T>(x.as<const T>(), data<const T>(args, 1), data<T>(args, 2), x.outer(1), x.inner(1),
                        stream_of(context));
}

template <class T>
void sigmoid_gate_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[1];
  cuda::sigmoid_gate_grad<T>(data<const T>(args, 0), x.as<const T>(), data<const T>(args, 2),
                             data<T>(args, 3), x.outer(1), x.inner(1), stream_of(context));
}

Kernel select_gate(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return sigmoid_gate<T>; });
}

Kernel select_gate_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return sigmoid_gate_grad<T>; });
}

}  // namespace

std::vector<DeviceOp> gate_ops(const OpChoices&) {
  return {{{"sigmoid_gate", select_gate}}, {{"sigmoid_gate_grad", select_gate_grad}}};
}

}  // namespace prun::cuda
