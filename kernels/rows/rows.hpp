// SPDX-License-Identifier: Apache-2.0
// Rows for the ranks that hold a part of the experts each. Experts come in `parts` equal groups, and for each
// part of them and each sequence there are `rows` rows: one for each position that has a choice in that part,
// in the order of positions, and behind these empty ones.
//   send_rows     rows[part, sequence] = x of those positions; empty ones are zero
//   send_choices  their choices in that part with their weights; all others are -1, which is nobody's expert
//   return_rows   y = sum of a position's rows, in the order of parts; and numbers of its choices, each from
//                 its own row
//   count_rows    needed[layer] = the most rows of any part and sequence, and `rows`, over `mean`
// Positions beyond `rows` have none: what they would have added is missing, and a step that was counted so is
// not kept. The rows of a sequence follow from that sequence alone, however a step is cut into microbatches.
// Ranks exchange the dimension of parts, `experts`, for that of sequences.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef parts_attrs[] = {int_attr("parts", 1), int_attr("rows", 1), int_attr("experts", 1)};

struct SendRows {
  static constexpr const char* kind = "send_rows";
  static constexpr const char* help = "x of the positions that have a choice in each part of the experts";
  static constexpr OperandDef operands[] = {{"x"}, {"index"}, {"rows", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(RuleOf<SendRows> s);
};

struct SendChoices {
  static constexpr const char* kind = "send_choices";
  static constexpr const char* help = "choices and weights of the positions that send_rows sends";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight"}, {"row_index", Access::write}, {"row_weight", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(RuleOf<SendChoices> s);
};

struct ReturnRows {
  static constexpr const char* kind = "return_rows";
  static constexpr const char* help = "y = sum over parts of the rows that send_rows made of each position";
  static constexpr OperandDef operands[] = {{"rows"},
                                            {"index"},
                                            {.name = "row_numbers", .optional = true},
                                            {"y", Access::write},
                                            {"numbers", Access::write, true}};
  static constexpr const AttrDef (&attrs)[3] = parts_attrs;
  static void rule(RuleOf<ReturnRows> s);
};

struct CountRows {
  static constexpr const char* kind = "count_rows";
  static constexpr const char* help = "the most rows that a part of the experts needs of a sequence";
  static constexpr OperandDef operands[] = {{"index"}, {"needed", Access::update}};
  static constexpr AttrDef attrs[] = {parts_attrs[0], parts_attrs[1], parts_attrs[2], real_attr("mean", 1.0)};
  static constexpr Effect effect = Effect::update;
  static constexpr bool any_order = true;
  static void rule(RuleOf<CountRows> s);
};

}  // namespace prun::ops
