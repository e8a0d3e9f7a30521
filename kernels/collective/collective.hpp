// SPDX-License-Identifier: Apache-2.0
// These ops exchange between ranks: the placement pass inserts them, and a comm plugin runs them. Over whole
// values they change nothing; they change a value's placement on one mesh axis (attribute `axis`, its
// number).
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef axis_attr[] = {int_attr("axis", 0)};

struct AllReduce {
  static constexpr const char* kind = "all_reduce";
  static constexpr const char* help = "partial sums of an axis become their sum everywhere";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr OpExchange exchange{CommKind::all_reduce};
  static void rule(RuleOf<AllReduce> s);
};

// Takes the maximum of what is no sum: the largest logit of a row whose logits are split.
struct AllReduceMax {
  static constexpr const char* kind = "all_reduce_max";
  static constexpr const char* help = "what each rank of an axis found largest becomes the largest of all";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr OpExchange exchange{CommKind::all_reduce, Reduction::max};
  static void rule(RuleOf<AllReduceMax> s);
};

// Sums what is accumulated in place: gradients, the loss, the sum of squares.
struct AllReduceUpdate {
  static constexpr const char* kind = "all_reduce_update";
  static constexpr const char* help = "the same in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::update;
  static constexpr OpExchange exchange{CommKind::all_reduce};
  static void rule(RuleOf<AllReduceUpdate> s);
};

struct AllReduceMaxUpdate {
  static constexpr const char* kind = "all_reduce_max_update";
  static constexpr const char* help = "what each rank of an axis found largest becomes the largest, in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::update;
  static constexpr OpExchange exchange{CommKind::all_reduce, Reduction::max};
  static void rule(RuleOf<AllReduceMaxUpdate> s);
};

// Exchanges along a dimension work on blocks: x[lead.., d, rest..] as [parts, lead.., d / parts, rest..],
// with one block for each coordinate of the axis. `dim` is the number of d in x, `parts` the extent of the
// axis.
inline constexpr AttrDef block_attrs[] = {int_attr("axis", 0), int_attr("dim", 0), int_attr("parts", 1)};

// With `direct` there are no blocks: x[lead.., d, rest..] as it is, exchanged for each place of lead.
inline constexpr AttrDef exchange_attrs[] = {block_attrs[0], block_attrs[1], block_attrs[2],
                                             int_attr("direct", 0)};

struct AllGather {
  static constexpr const char* kind = "all_gather";
  static constexpr const char* help = "the parts of a dimension come together, as blocks unless `direct`";
  static constexpr OperandDef operands[] = {{"x"}, {"blocks", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::all_gather};
  static void rule(RuleOf<AllGather> s);
};

struct ReduceScatter {
  static constexpr const char* kind = "reduce_scatter";
  static constexpr const char* help =
      "partial sums, as blocks unless `direct`, become the sum of this coordinate's block";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::reduce_scatter};
  static void rule(RuleOf<ReduceScatter> s);
};

struct ReduceScatterMax {
  static constexpr const char* kind = "reduce_scatter_max";
  static constexpr const char* help =
      "of what each rank found largest, as blocks unless `direct`, this coordinate's block of the largest";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = exchange_attrs;
  static constexpr OpExchange exchange{CommKind::reduce_scatter, Reduction::max};
  static void rule(RuleOf<ReduceScatterMax> s);
};

// Changes the dimension that a value is sharded on: each rank has `to` whole for its part of `dim`, and gets
// `dim` whole for its part of `to`. With `direct` it lies as its blocks would.
struct AllToAll {
  static constexpr const char* kind = "all_to_all";
  static constexpr const char* help =
      "blocks along `to` of a part of `dim` become blocks along `dim`, as they lie if `direct`";
  static constexpr OperandDef operands[] = {{"blocks"}, {"swapped", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0), int_attr("dim", 0), int_attr("parts", 1),
                                      int_attr("to", 1), later(int_attr("direct", 0))};
  static constexpr OpExchange exchange{CommKind::all_to_all};
  static void rule(RuleOf<AllToAll> s);
  static void between_values(RuleOf<AllToAll> s);
  static void between_blocks(RuleOf<AllToAll> s);
};

struct Block {
  static constexpr const char* kind = "block";
  static constexpr const char* help = "x as one block after another";
  static constexpr OperandDef operands[] = {{"x"}, {"blocks", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(RuleOf<Block> s);
};

struct Unblock {
  static constexpr const char* kind = "unblock";
  static constexpr const char* help = "blocks side by side again";
  static constexpr OperandDef operands[] = {{"blocks"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(RuleOf<Unblock> s);
};

// Splits what is the same everywhere without an exchange: each rank keeps its part.
struct Slice {
  static constexpr const char* kind = "slice";
  static constexpr const char* help = "this coordinate's part of dimension `dim`";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = block_attrs;
  static void rule(RuleOf<Slice> s);
};

// Makes what is the same everywhere a partial sum: it counts once.
struct Gate {
  static constexpr const char* kind = "gate";
  static constexpr const char* help = "x where the runtime number `open` is not 0, else zeros";
  static constexpr OperandDef operands[] = {{"x"}, {"open"}, {"y", Access::write}};
  static void rule(RuleOf<Gate> s);
};

}  // namespace prun::ops
