// SPDX-License-Identifier: Apache-2.0
// The op ahead gives every position the number that lies `by` positions ahead of it in its sequence, such as
// a token or a target: for modules that predict further tokens. Where there is none, in the sequence or in
// the position's document, it gives `otherwise`.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

struct Ahead {
  static constexpr const char* kind = "ahead";
  static constexpr const char* at_position = kind;  // in text that is generated nothing further is predicted
  static constexpr const char* help =
      "the number `by` positions ahead in the same sequence and document, else `otherwise`";
  static constexpr OperandDef operands[] = {
      {"x"}, {"y", Access::write}, positions_operand, {"documents", Access::read, true}};
  static constexpr AttrDef attrs[] = {int_attr("by", 1), int_attr("otherwise", 0)};
  static void rule(RuleOf<Ahead> s);
};

}  // namespace prun::ops
