// SPDX-License-Identifier: Apache-2.0
// The op router computes logits[..., routes] = x[..., hidden] * weight[routes, hidden], plus a bias if there
// is one, in the type of statistics whatever x is in, since near choices differ in their last bits alone.
// `routes` is another dimension than `experts`: where experts are sharded over ranks, each still scores all
// of them.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct Router {
  static constexpr const char* kind = "router";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "scores of all experts, kept with more precision than x";
  static constexpr OperandDef operands[] = {
      {"x"}, {"weight"}, {"logits", Access::write}, {"bias", Access::read, true}};
  static void rule(RuleOf<Router> s);
  static void gradient(GradientOf<Router> g);
  static void cost(ShapeOf<Router> s, OpCost& c);
};

struct RouterInputGrad {
  static constexpr const char* kind = "router_input_grad";
  static constexpr const char* help = "dx = dlogits * weight";
  static constexpr OperandDef operands[] = {{"dlogits"}, {"weight"}, {"dx", Access::write}};
  static void rule(RuleOf<RouterInputGrad> s);
  static void cost(ShapeOf<RouterInputGrad> s, OpCost& c);
};

struct RouterWeightGrad {
  static constexpr const char* kind = "router_weight_grad";
  static constexpr const char* help = "dweight += dlogits^T * x";
  static constexpr OperandDef operands[] = {{"x"}, {"dlogits"}, {"dweight", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<RouterWeightGrad> s);
  static void cost(ShapeOf<RouterWeightGrad> s, OpCost& c);
};

}  // namespace prun::ops
