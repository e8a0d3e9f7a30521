// SPDX-License-Identifier: Apache-2.0
// add_parts adds to stretches of one dimension, such as queries, keys and values within their packed
// projection or one half of a gated one; take_part, its gradient, is one of them by itself. A stretch of
// dimension `packed` from its element 4 on has a dimension `packed_4` in its place.
// pair puts two values of one shape behind each other in their last dimension, `hidden` say, which makes it
// `hidden_pair`; half, its gradient, is one of the two again.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct AddParts {
  static constexpr const char* kind = "add_parts";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "y = a, and b, c and d added to elements [begin, end) of its dimension number `dim`";
  static constexpr OperandDef operands[] = {
      {"a"}, {"b"}, {"c", Access::read, true}, {"d", Access::read, true}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0),     int_attr("begin_b", 0), int_attr("end_b", 0),
                                      int_attr("begin_c", 0), int_attr("end_c", 0),   int_attr("begin_d", 0),
                                      int_attr("end_d", 0)};
  static void rule(RuleOf<AddParts> s);
  static void gradient(GradientOf<AddParts> g);
};

struct TakePart {
  static constexpr const char* kind = "take_part";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = elements [begin, end) of x's dimension number `dim`";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0), int_attr("begin", 0), int_attr("end", 0)};
  static void rule(RuleOf<TakePart> s);
  static void cost(ShapeOf<TakePart> s, OpCost& c);
};

struct Pair {
  static constexpr const char* kind = "pair";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = a and, behind it in the last dimension, b";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(RuleOf<Pair> s);
  static void gradient(GradientOf<Pair> g);
};

struct Half {
  static constexpr const char* kind = "half";
  static constexpr const char* help = "a of what pair has made, or b, which is the second";
  static constexpr OperandDef operands[] = {{"pair"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("second", 0)};
  static void rule(RuleOf<Half> s);
};

}  // namespace prun::ops
