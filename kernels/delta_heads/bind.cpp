// Launches what stands in front of the gated delta rule.
#include "delta_heads/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/delta_heads.hpp"

namespace prun::cuda {
namespace {

template <class T>
void split_mixed(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitMixed> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  cuda::split_mixed(x.as<const T>(), y.as<T>(), op["gate"].as<T>(), x.outer(1), y.inner(1),
                    x.inner(1) - y.inner(1), stream_of(context));
}

template <class T>
void join_mixed(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinMixed> op(args);
  const Tensor &y = op["y"], &x = op["x"];
  cuda::join_mixed(y.as<const T>(), op["gate"].as<const T>(), x.as<T>(), x.outer(1), y.inner(1),
                   x.inner(1) - y.inner(1), stream_of(context));
}

template <class T>
void delta_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaHeads> op(args);
  const Tensor& x = op["x"];
  const std::int64_t key = op.integer("key_dim");
  cuda::delta_heads(x.as<const T>(), op["q"].as<T>(), op["k"].as<T>(), op["v"].as<T>(), x.outer(1), key,
                    x.inner(1) - 2 * key, op.real("eps"), stream_of(context));
}

template <class T>
void delta_heads_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaHeadsGrad> op(args);
  const Tensor& x = op["x"];
  const std::int64_t key = op.integer("key_dim");
  cuda::delta_heads_grad(op["dq"].as<const T>(), op["dk"].as<const T>(), op["dv"].as<const T>(),
                         x.as<const T>(), op["dx"].as<T>(), x.outer(1), key, x.inner(1) - 2 * key,
                         op.real("eps"), stream_of(context));
}

// `gate` has a number of each value head of each position, `x` what it was made of.
template <class Op>
GateSizes gate_sizes(const ArgsOf<Op>& op, OperandOf<Op> gate) {
  return {op[gate].elements(), op["rate"].elements(), op["x"].inner(1) / 2};
}

template <class T>
void delta_gates(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaGates> op(args);
  cuda::delta_gates(gate_sizes(op, "g"), op["x"].as<const T>(), op["rate"].as<const T>(),
                    op["bias"].as<const T>(), op["g"].as<Compute<T>>(), op["beta"].as<Compute<T>>(),
                    stream_of(context));
}

template <class T>
void delta_gates_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaGatesInputGrad> op(args);
  cuda::delta_gates_input_grad(gate_sizes(op, "dg"), op["dg"].as<const Compute<T>>(),
                               op["dbeta"].as<const Compute<T>>(), op["x"].as<const T>(),
                               op["rate"].as<const T>(), op["bias"].as<const T>(), op["dx"].as<T>(),
                               stream_of(context));
}

template <class T, class S>
void delta_gates_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaGatesWeightGrad> op(args);
  cuda::delta_gates_weight_grad(gate_sizes(op, "dg"), op["dg"].as<const Compute<T>>(), op["x"].as<const T>(),
                                op["rate"].as<const T>(), op["bias"].as<const T>(), sum_in<S>(op, "drate"),
                                sum_in<S>(op, "dbias"), stream_of(context));
}

Kernel select_split_mixed(const OpShape& shape) {
  const ShapeOf<ops::SplitMixed> s(shape);
  if (!same_type(s, {"x", "y", "gate"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return split_mixed<T>; });
}

Kernel select_join_mixed(const OpShape& shape) {
  const ShapeOf<ops::JoinMixed> s(shape);
  if (!same_type(s, {"y", "gate", "x"})) return nullptr;
  return by_value(s["y"].dtype, []<class T>() -> Kernel { return join_mixed<T>; });
}

Kernel select_delta_heads(const OpShape& shape) {
  const ShapeOf<ops::DeltaHeads> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return delta_heads<T>; });
}

Kernel select_delta_heads_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaHeadsGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "x", "dx"})) return nullptr;
  return by_value(s["dq"].dtype, []<class T>() -> Kernel { return delta_heads_grad<T>; });
}

Kernel select_delta_gates(const OpShape& shape) {
  const ShapeOf<ops::DeltaGates> s(shape);
  if (!same_type(s, {"x", "rate", "bias"}) || !computed_type(s, s["x"].dtype, {"g", "beta"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return delta_gates<T>; });
}

Kernel select_delta_gates_input_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaGatesInputGrad> s(shape);
  if (!same_type(s, {"x", "rate", "bias", "dx"}) || !computed_type(s, s["x"].dtype, {"dg", "dbeta"}))
    return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return delta_gates_input_grad<T>; });
}

Kernel select_delta_gates_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaGatesWeightGrad> s(shape);
  if (!same_type(s, {"x", "rate", "bias"}) || !computed_type(s, s["x"].dtype, {"dg"})) return nullptr;
  return by_sum(s, "x", {"drate", "dbias"},
                []<class T, class S>() -> Kernel { return delta_gates_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> delta_heads_ops(const OpChoices&) {
  return {{{ops::SplitMixed::kind, select_split_mixed}},
          {{ops::JoinMixed::kind, select_join_mixed}},
          {{ops::DeltaHeads::kind, select_delta_heads}},
          {{ops::DeltaHeadsGrad::kind, select_delta_heads_grad}},
          {{ops::DeltaGates::kind, select_delta_gates}},
          {{ops::DeltaGatesInputGrad::kind, select_delta_gates_input_grad}},
          {{ops::DeltaGatesWeightGrad::kind, select_delta_gates_weight_grad, nullptr,
            bits_of<ops::DeltaGatesWeightGrad>("drate", "dbias")}}};
}

}  // namespace prun::cuda
