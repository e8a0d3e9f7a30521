// SPDX-License-Identifier: Apache-2.0
// Defines output_gate, which says of each element how much of it counts: y = x * sigmoid(gate) or, with
// `silu`, x * silu(gate). split_gate takes the gates of heads out of what a projection gives, where each
// slot, such as a query, has its gate behind it; join_gate is its gradient's way back.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef gate_attrs[] = {int_attr("silu", 0)};

struct OutputGate {
  static constexpr const char* kind = "output_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x * sigmoid(gate), or x * silu(gate)";
  static constexpr OperandDef operands[] = {{"x"}, {"gate"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = gate_attrs;
  static void rule(RuleOf<OutputGate> s);
  static void gradient(GradientOf<OutputGate> g);
};

struct OutputGateGrad {
  static constexpr const char* kind = "output_gate_grad";
  static constexpr const char* help = "dgate of output_gate";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"gate"}, {"dgate", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = gate_attrs;
  static void rule(RuleOf<OutputGateGrad> s);
};

struct SplitGate {
  static constexpr const char* kind = "split_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "slots and their gates, out of slots each of which has one behind it";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}, {"gate", Access::write}};
  static void rule(RuleOf<SplitGate> s);
  static void gradient(GradientOf<SplitGate> g);
};

struct JoinGate {
  static constexpr const char* kind = "join_gate";
  static constexpr const char* help = "what split_gate took apart, together: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"gate"}, {"x", Access::write}};
  static void rule(RuleOf<JoinGate> s);
};

}  // namespace prun::ops
