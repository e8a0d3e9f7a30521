// SPDX-License-Identifier: Apache-2.0
// Defines lm_head with terms that keep logits in bounds, whole and in the four ops of its split form
// (lm_head.hpp, lm_head_split.hpp). Of a row with logits l over V words, lse = log of the sum of their
// exponentials:
//   loss = lse - (1 - smoothing) l[target] - smoothing / V * sum of l + z lse^2
//   dl   = exp(l - lse) (1 + 2 z lse) - smoothing / V, and minus 1 - smoothing at the target
// The split form's `hit` has both summands of l, so that ranks exchange what they do without.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/lm_head.hpp"
#include "prun/ops/lm_head_split.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef head_z = real_attr("z", 0), head_smoothing = real_attr("smoothing", 0);

struct LmHeadRegularized {
  static constexpr const char* kind = "lm_head_regularized";
  static constexpr const char* help = "language-model head with z-loss and label smoothing";
  static constexpr const OperandDef (&operands)[9] = head_operands;
  static constexpr AttrDef attrs[] = {head_z, head_smoothing, head_softcap};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static constexpr const char* logits = "lm_head_logits";
  static void rule(RuleOf<LmHeadRegularized> s);
  static void gradient(GradientOf<LmHeadRegularized> g);
  static void split(SplitOf<LmHeadRegularized> s);
  static void cost(ShapeOf<LmHeadRegularized> s, OpCost& c);
};

struct LmHeadRegularizedScan {
  static constexpr const char* kind = "lm_head_regularized_scan";
  static constexpr const char* help =
      "as lm_head_scan; `hit` is this part's share of the smoothed target's logits";
  static constexpr const OperandDef (&operands)[7] = head_scan_operands;
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0), head_smoothing, head_softcap};
  static void rule(RuleOf<LmHeadRegularizedScan> s);
  static void cost(ShapeOf<LmHeadRegularizedScan> s, OpCost& c);
};

struct LmHeadRegularizedLoss {
  static constexpr const char* kind = "lm_head_regularized_loss";
  static constexpr const char* help =
      "lse = gmax + log(scaled); loss += lse - hit + z * lse^2 where the target counts";
  static constexpr const OperandDef (&operands)[6] = head_loss_operands;
  static constexpr AttrDef attrs[] = {head_z};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<LmHeadRegularizedLoss> s);
};

struct LmHeadRegularizedGrad {
  static constexpr const char* kind = "lm_head_regularized_grad";
  static constexpr const char* help =
      "gradients of the regularized loss over one part of the vocabulary: dweight, dbias, and this part's "
      "contribution to dx";
  static constexpr const OperandDef (&operands)[9] = head_grad_operands;
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0), head_z, head_smoothing, head_softcap};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(RuleOf<LmHeadRegularizedGrad> s);
  static void cost(ShapeOf<LmHeadRegularizedGrad> s, OpCost& c);
};

}  // namespace prun::ops
