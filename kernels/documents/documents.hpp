// SPDX-License-Identifier: Apache-2.0
// Defines document_starts, which gives for each position the first one of its document, within the sample: if
// documents are kept apart, an op that lets positions see each other takes it as its operand `documents`.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

struct DocumentStarts {
  static constexpr const char* kind = "document_starts";
  static constexpr const char* help =
      "the first position of each position's document, which the token `end` ends";
  static constexpr OperandDef operands[] = {{"tokens"}, {"starts", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("end", -1)};
  static void rule(RuleOf<DocumentStarts> s);
};

}  // namespace prun::ops
