// SPDX-License-Identifier: Apache-2.0
// zero and copy: clearing an accumulator, and moving bytes between a staging buffer and the device. total:
// what ranks and stages have counted, together. whole_logits: what the host reads of a head. checksum:
// whether two ranks have the same bytes.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct Zero {
  static constexpr const char* kind = "zero";
  static constexpr const char* help = "x = 0";
  static constexpr OperandDef operands[] = {{"x", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr bool clears = true;
  static void rule(RuleOf<Zero>);
};

struct Copy {
  static constexpr const char* kind = "copy";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x, across queues";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr bool copies = true;
  static void rule(RuleOf<Copy> s);
};

struct Total {
  static constexpr const char* kind = "total";
  static constexpr const char* help = "y = x, a sum that is complete";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr bool copies = true;
  static void rule(RuleOf<Total> s);
};

// Gives a head's logits to the host, so that no rank has a part of the vocabulary alone.
struct WholeLogits {
  static constexpr const char* kind = "whole_logits";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x, of the whole vocabulary";
  static constexpr bool copies = true;
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<WholeLogits> s);
};

struct Checksum {
  static constexpr const char* kind = "checksum";
  static constexpr const char* help =
      "sums add up, modulo 2^64, to a number that any changed element of x changes";
  static constexpr OperandDef operands[] = {{"x"}, {"sums", Access::write}};
  static void rule(RuleOf<Checksum> s);
};

}  // namespace prun::ops
