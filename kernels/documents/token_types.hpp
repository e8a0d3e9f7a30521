// SPDX-License-Identifier: Apache-2.0
// The op token_types says which part of its sample a position is in, where a token separates the parts: the
// number of separators before it, at most types - 1. The separator itself belongs to the part that it ends.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

struct TokenTypes {
  static constexpr const char* kind = "token_types";
  static constexpr const char* help =
      "how many tokens `separator` lie in front of each position, at most types - 1";
  static constexpr OperandDef operands[] = {{"tokens"}, {"kinds", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("separator", -1), int_attr("types", 2)};
  static void rule(RuleOf<TokenTypes> s);
};

}  // namespace prun::ops
