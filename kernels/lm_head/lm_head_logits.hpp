// SPDX-License-Identifier: Apache-2.0
// Defines lm_head_logits, the LM head where nothing is trained and no loss is needed: the logits themselves
// of the one position of each row whose target counts, in the type of statistics.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

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
