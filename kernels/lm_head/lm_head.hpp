// SPDX-License-Identifier: Apache-2.0
// lm_head: logits, softmax cross-entropy and their gradients in one op, in chunks of rows, so that the logits
// never exist whole. There may be a bias for each word. It computes its gradients in forward: dx leaves it as
// a result, and the weight's gradient is added to its accumulator right there.
//   loss += sum over targets that count of -log softmax(x w^T + bias)[target]
//   dx, dweight, dbias: gradients of loss * scale, where scale = 1 / number of targets of the whole step
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

// Heads with terms of their own have the same.
inline constexpr OperandDef head_operands[] = {{"x"},
                                               {.name = "weight", .rows_by = 2},
                                               {"targets"},
                                               {"scale"},
                                               {"loss", Access::update},
                                               {"dweight", Access::update, true},
                                               {"dx", Access::write},
                                               head_bias,
                                               head_dbias};

struct LmHead {
  static constexpr const char* kind = "lm_head";
  static constexpr const char* help = "language-model head with fused, chunked cross-entropy";
  static constexpr const OperandDef (&operands)[9] = head_operands;
  static constexpr AttrDef attrs[] = {head_softcap};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static constexpr const char* logits = "lm_head_logits";
  static void rule(RuleOf<LmHead> s);
  static void gradient(GradientOf<LmHead> g);
  static void split(SplitOf<LmHead> s);
  static void cost(ShapeOf<LmHead> s, OpCost& c);
};

}  // namespace prun::ops
