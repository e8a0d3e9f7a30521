// SPDX-License-Identifier: Apache-2.0
// lm_head_groups gives, beside lm_head_loss or lm_head_regularized_loss, the loss of each group of targets:
//   sums[layer, group, 0] += lse - hit + z * lse^2, lse = gmax + log(scaled), where a target of the group
//   counts sums[layer, group, 1] += 1
// A number that is no group's counts in none.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

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

}  // namespace prun::ops
