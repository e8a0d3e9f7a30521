// SPDX-License-Identifier: Apache-2.0
// The op balance keeps experts evenly loaded. It computes over whole sequences and sums, so that the result
// is the same however a step is cut into microbatches and sharded over ranks. A sequence without a target
// that counts is padding and does not count.
//   counts[layer, e] += choices of expert e
//   losses[layer, 0] += scale * coefficient * routes * sum over e of f(e) * P(e)    by sequence, where f is
//   the
//                       share of its choices that e has and P the mean of its scores, which come to 1 a
//                       position
//   losses[layer, 1] += scale * z * mean over its positions of logsumexp(logits)^2
// Both are part of what is trained: scale is 1 / sequences of the whole step.
// steer: where keep is not 0, a bias of route goes up by `rate` where an expert has less than the mean of the
// whole step's choices, and down where it has more.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef losses_attrs[] = {int_attr("sigmoid", 0), real_attr("coefficient", 0.0),
                                           real_attr("z", 0.0)};

struct Balance {
  static constexpr const char* kind = "balance";
  static constexpr const char* at_position = kind;  // in text that is generated nothing is counted
  static constexpr bool any_order = true;
  static constexpr const char* help = "counts choices by expert, and what unevenness costs";
  static constexpr OperandDef operands[] = {
      {"logits", Access::read, true},  {"index"}, {"targets"}, {"scale"}, {"counts", Access::update},
      {"losses", Access::update, true}};
  static constexpr const AttrDef (&attrs)[3] = losses_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<Balance> s);
  static void gradient(GradientOf<Balance> g);
};

struct BalanceGrad {
  static constexpr const char* kind = "balance_grad";
  static constexpr const char* help = "dlogits of the losses of balance";
  static constexpr bool any_order = true;
  static constexpr OperandDef operands[] = {
      {"logits"}, {"index"}, {"targets"}, {"scale"}, {"dlogits", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = losses_attrs;
  static void rule(RuleOf<BalanceGrad> s);
};

struct Steer {
  static constexpr const char* kind = "steer";
  static constexpr const char* help =
      "where keep is not 0: bias += rate * sign(mean of counts[layer] - counts[layer])";
  static constexpr OperandDef operands[] = {{"counts"}, {"keep"}, {"bias", Access::update}};
  static constexpr AttrDef attrs[] = {real_attr("rate", 0.001)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<Steer> s);
};

}  // namespace prun::ops
