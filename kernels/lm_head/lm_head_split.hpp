// SPDX-License-Identifier: Apache-2.0
// The LM head for a weight whose vocabulary is split: lm_head in four ops, so that ranks can exchange the
// little that each must know of the others' logits. In between stand, over the axis that splits the
// vocabulary:
//   lm_head_scan      max, sum and hit of this part   -> gmax: all_reduce_max of max
//   lm_head_rescale   sum, as if gmax were the max    -> all_reduce of scaled, and of hit
//   lm_head_loss      lse = log of the sum of all exponentials; the loss
//   lm_head_grad      dweight and dbias of this part; dx -> all_reduce of dx
// The logits exist in chunks of rows, twice: scan and grad compute them each.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

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

}  // namespace prun::ops
