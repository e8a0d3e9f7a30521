// SPDX-License-Identifier: Apache-2.0
// The op cap_choices keeps experts from having more positions of a sequence than `most`: of those that chose
// an expert, it keeps the `most` whose weights are largest, or without weights the first, and of equal ones
// the first; weights are equal that are so in fp32, so that the rounding of fp64 decides nothing. What it
// drops becomes -1, which is nobody's expert: it has no row, adds nothing and has no gradient, and the other
// weights of its position stay as they are. It looks at whole sequences, so that the result is the same
// however a step is cut into microbatches and sharded over ranks. most = 0 keeps all: nothing is dropped
// where nothing is trained.
//
// count_dropped: dropped[layer] += choices that were dropped. A sequence without a target that counts is
// padding and does not count.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

struct CapChoices {
  static constexpr const char* kind = "cap_choices";
  static constexpr const char* at_position = kind;
  static constexpr const char* noise = "most";
  static constexpr const char* help = "drops choices of an expert beyond so many of a sequence";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight", Access::read, true}, {"kept", Access::write}, positions_operand};
  static constexpr AttrDef attrs[] = {int_attr("most", 0), int_attr("experts", 0)};
  static void rule(RuleOf<CapChoices> s);
};

struct CountDropped {
  static constexpr const char* kind = "count_dropped";
  static constexpr const char* at_position = kind;  // in text that is generated nothing is counted
  static constexpr bool any_order = true;
  static constexpr const char* help = "counts choices that were dropped";
  static constexpr OperandDef operands[] = {{"index"}, {"targets"}, {"dropped", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<CountDropped> s);
};

}  // namespace prun::ops
