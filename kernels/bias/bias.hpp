// SPDX-License-Identifier: Apache-2.0
// Defines bias_grad, the gradient of a bias of linear.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct BiasGrad {
  static constexpr const char* kind = "bias_grad";
  static constexpr const char* help = "dbias += dy summed over its leading dimensions";
  static constexpr OperandDef operands[] = {{"dy"}, {"dbias", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<BiasGrad> s);
};

}  // namespace prun::ops
