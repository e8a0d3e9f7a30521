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

// ------------------------------------------------------------ over a split vocabulary

// The LM head for a weight whose vocabulary is split: lm_head in four ops, so that ranks can exchange the
// little that each must know of the others' logits. In between stand, over the axis that splits the
// vocabulary:
//   lm_head_scan      max, sum and hit of this part   -> gmax: all_reduce_max of max
//   lm_head_rescale   sum, as if gmax were the max    -> all_reduce of scaled, and of hit
//   lm_head_loss      lse = log of the sum of all exponentials; the loss
//   lm_head_grad      dweight and dbias of this part; dx -> all_reduce of dx
// The logits exist in chunks of rows, twice: scan and grad compute them each.

// The split form of a head with terms of its own has the same.
inline constexpr OperandDef head_scan_operands[] = {{"x"},
                                                    {.name = "weight", .rows_by = 2},
                                                    {"targets"},
                                                    {"max", Access::write},
                                                    {"sum", Access::write},
                                                    {"hit", Access::write},
                                                    head_bias};
inline constexpr OperandDef head_loss_operands[] = {
    {"gmax"}, {"scaled"}, {"hit"}, {"targets"}, {"loss", Access::update}, {"lse", Access::write}};
inline constexpr OperandDef head_grad_operands[] = {
    {"x"},     {.name = "weight", .rows_by = 2},  {"targets"},           {"lse"},
    {"scale"}, {"dweight", Access::update, true}, {"dx", Access::write}, head_bias,
    head_dbias};

struct LmHeadScan {
  static constexpr const char* kind = "lm_head_scan";
  static constexpr const char* help =
      "by row, over one part of the vocabulary: the largest logit, the sum of exp(logit - largest), and the "
      "target's logit (0 where another part has it)";
  static constexpr const OperandDef (&operands)[7] = head_scan_operands;
  // The vocabulary of all parts: a target beyond it makes its hit NaN.
  static constexpr AttrDef attrs[] = {int_attr("vocab", 0), head_softcap};
  static void rule(RuleOf<LmHeadScan> s);
  static void cost(ShapeOf<LmHeadScan> s, OpCost& c);
};

struct LmHeadRescale {
  static constexpr const char* kind = "lm_head_rescale";
  static constexpr const char* help = "scaled = sum * exp(max - gmax)";
  static constexpr OperandDef operands[] = {{"max"}, {"gmax"}, {"sum"}, {"scaled", Access::write}};
  static void rule(RuleOf<LmHeadRescale> s);
};

struct LmHeadLoss {
  static constexpr const char* kind = "lm_head_loss";
  static constexpr const char* help = "lse = gmax + log(scaled); loss += lse - hit where the target counts";
  static constexpr const OperandDef (&operands)[6] = head_loss_operands;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<LmHeadLoss> s);
};

struct LmHeadGrad {
  static constexpr const char* kind = "lm_head_grad";
  static constexpr const char* help =
      "gradients of the loss over one part of the vocabulary: dweight, dbias, and this part's contribution "
      "to dx";
  static constexpr const OperandDef (&operands)[9] = head_grad_operands;
  static constexpr AttrDef attrs[] = {head_softcap};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(RuleOf<LmHeadGrad> s);
  static void cost(ShapeOf<LmHeadGrad> s, OpCost& c);
};

// ------------------------------------------------------------ with terms for logits

// lm_head with terms that keep logits in bounds, whole and in its split form. Of a row with logits l over V
// words, lse = log of the sum of their exponentials:
//   loss = lse - (1 - smoothing) l[target] - smoothing / V * sum of l + z lse^2
//   dl   = exp(l - lse) (1 + 2 z lse) - smoothing / V, and minus 1 - smoothing at the target
// The split form's `hit` has both summands of l, so that ranks exchange what they do without.

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

// ------------------------------------------------------------ by groups

// lm_head_groups gives, beside lm_head_loss or lm_head_regularized_loss, the loss of each group of targets:
//   sums[layer, group, 0] += lse - hit + z * lse^2, lse = gmax + log(scaled), where a target of the group
//   counts sums[layer, group, 1] += 1
// A number that is no group's counts in none.
struct LmHeadGroups {
  static constexpr const char* kind = "lm_head_groups";
  static constexpr const char* help = "the loss of an LM head's split form apart by groups of targets";
  static constexpr bool any_order = true;
  static constexpr OperandDef operands[] = {{"gmax"},    {"scaled"}, {"hit"},
                                            {"targets"}, {"groups"}, {"sums", Access::update}};
  static constexpr AttrDef attrs[] = {real_attr("z", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<LmHeadGroups> s);
};

// ------------------------------------------------------------ without a loss

// lm_head_logits is the LM head where nothing is trained and no loss is needed: the logits themselves
// of the one position of each row whose target counts, in the type of statistics.
struct LmHeadLogits {
  static constexpr const char* kind = "lm_head_logits";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "by row, the logits of the last position whose target is not negative; zeros, or the bias, "
      "where there is none";
  static constexpr OperandDef operands[] = {
      {"x"}, {.name = "weight", .rows_by = 2}, {"targets"}, {"logits", Access::write}, head_bias};
  static constexpr AttrDef attrs[] = {head_softcap};
  static void rule(RuleOf<LmHeadLogits> s);
  static void cost(ShapeOf<LmHeadLogits> s, OpCost& c);
};

}  // namespace prun::ops
