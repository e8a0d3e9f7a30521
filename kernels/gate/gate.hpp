// SPDX-License-Identifier: Apache-2.0
// Defines sigmoid_gate: one number for each position says how much of it counts.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct SigmoidGate {
  static constexpr const char* kind = "sigmoid_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = sigmoid(gate) * x, one gate a position";
  static constexpr OperandDef operands[] = {{"x"}, {"gate"}, {"y", Access::write}};
  static void rule(RuleOf<SigmoidGate> s);
  static void gradient(GradientOf<SigmoidGate> g);
};

struct SigmoidGateGrad {
  static constexpr const char* kind = "sigmoid_gate_grad";
  static constexpr const char* help = "dgate of sigmoid_gate";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"gate"}, {"dgate", Access::write}};
  static void rule(RuleOf<SigmoidGateGrad> s);
};

}  // namespace prun::ops
