// Launches gates of outputs.
#include "output_gate/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/output_gate.hpp"

namespace prun::cuda {
namespace {

template <class T>
void output_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::OutputGate> op(args);
  cuda::output_gate(op["x"].as<const T>(), op["gate"].as<const T>(), op["y"].as<T>(), op["x"].elements(),
                    op.integer("silu") != 0, stream_of(context));
}

template <class T>
void output_gate_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::OutputGateGrad> op(args);
  cuda::output_gate_grad(op["dy"].as<const T>(), op["x"].as<const T>(), op["gate"].as<const T>(),
                         op["dgate"].as<T>(), op["dy"].elements(), op.integer("silu") != 0,
                         stream_of(context));
}

template <class T>
void split_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitGate> op(args);
  const Tensor& y = op["y"];
  cuda::split_gate(op["x"].as<const T>(), op["y"].as<T>(), op["gate"].as<T>(), y.outer(1), y.inner(1),
                   stream_of(context));
}

template <class T>
void join_gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinGate> op(args);
  const Tensor& y = op["y"];
  cuda::join_gate(op["y"].as<const T>(), op["gate"].as<const T>(), op["x"].as<T>(), y.outer(1), y.inner(1),
                  stream_of(context));
}

Kernel select_output_gate(const OpShape& shape) {
  const ShapeOf<ops::OutputGate> s(shape);
  if (!same_type(s, {"x", "gate", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return output_gate<T>; });
}

Kernel select_output_gate_grad(const OpShape& shape) {
  const ShapeOf<ops::OutputGateGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gate", "dgate"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return output_gate_grad<T>; });
}

Kernel select_split_gate(const OpShape& shape) {
  const ShapeOf<ops::SplitGate> s(shape);
  if (!same_type(s, {"x", "y", "gate"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return split_gate<T>; });
}

Kernel select_join_gate(const OpShape& shape) {
  const ShapeOf<ops::JoinGate> s(shape);
  if (!same_type(s, {"y", "gate", "x"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return join_gate<T>; });
}

}  // namespace

std::vector<DeviceOp> output_gate_ops(const OpChoices&) {
  return {{{ops::OutputGate::kind, select_output_gate}},
          {{ops::OutputGateGrad::kind, select_output_gate_grad}},
          {{ops::SplitGate::kind, select_split_gate}},
          {{ops::JoinGate::kind, select_join_gate}}};
}

}  // namespace prun::cuda
