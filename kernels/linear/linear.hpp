// SPDX-License-Identifier: Apache-2.0
// linear: y[..., out] = x[..., in] * weight[out, in] + bias[out], where `out` and `in` may each be several
// dimensions (in_dims says how many of the weight's last ones are summed over).
// Gradients of input and weight are separate ops, so that a schedule may move the latter. linear_gelu_grad is
// the input's through a gelu before it: for devices that do both in one.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef linear_attrs[] = {int_attr("in_dims", 1), later(int_attr("fp8", 0)),
                                           later(int_attr("fp8_from", 0)), later(int_attr("fp8_until", 0))};

inline constexpr AttrDef in_dims_attr[] = {int_attr("in_dims", 1)};

struct Linear {
  static constexpr const char* kind = "linear";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "matrix product with a weight, bias optional";
  static constexpr OperandDef operands[] = {
      {"x"}, {"weight"}, {"bias", Access::read, true}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static void rule(RuleOf<Linear> s);
  static void rule_of_codes(RuleOf<Linear> s);
  static bool in_blocks(ShapeOf<Linear> part, ShapeOf<Linear> whole);
  static void gradient(GradientOf<Linear> g);
  static void cost(ShapeOf<Linear> s, OpCost& c);
};

struct LinearInputGrad {
  static constexpr const char* kind = "linear_input_grad";
  static constexpr const char* help = "dx = dy * weight";
  static constexpr OperandDef operands[] = {{"dy"}, {"weight"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static void rule(RuleOf<LinearInputGrad> s);
  static void rule_of_codes(RuleOf<LinearInputGrad> s);
  static bool in_blocks(ShapeOf<LinearInputGrad> part, ShapeOf<LinearInputGrad> whole);
  static void cost(ShapeOf<LinearInputGrad> s, OpCost& c);
};

struct LinearGeluGrad {
  static constexpr const char* kind = "linear_gelu_grad";
  static constexpr const char* help = "dx = dy * weight * gelu'(x), with dx and x on the other side of gelu";
  static constexpr OperandDef operands[] = {{"dy"}, {"weight"}, {"x"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = in_dims_attr;
  static void rule(RuleOf<LinearGeluGrad> s);
  static void cost(ShapeOf<LinearGeluGrad> s, OpCost& c);
};

struct LinearWeightGrad {
  static constexpr const char* kind = "linear_weight_grad";
  static constexpr const char* help = "dweight += dy^T * x";
  static constexpr OperandDef operands[] = {{"x"}, {"dy"}, {"dweight", Access::update}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<LinearWeightGrad> s);
  static void rule_of_codes(RuleOf<LinearWeightGrad> s);
  static bool in_blocks(ShapeOf<LinearWeightGrad> part, ShapeOf<LinearWeightGrad> whole);
  static void cost(ShapeOf<LinearWeightGrad> s, OpCost& c);
};

}  // namespace prun::ops
