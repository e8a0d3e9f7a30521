// SPDX-License-Identifier: Apache-2.0
// The op embedding computes y[b, s] = table[tokens[b, s]], and add_position y[b, s] = x[b, s] + table[s].
// Both gradients add rows into the table's accumulator. A vocabulary shard contributes only the tokens it
// holds (its `start` says which), so a table sharded on its rows gives a partial sum. The row of the token
// `padding` gets no gradient by being looked up.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef padding_attr[] = {later(int_attr("padding", -1))};

struct Embedding {
  static constexpr const char* kind = "embedding";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "rows of a table, looked up by token";
  static constexpr OperandDef operands[] = {
      {"tokens"}, {.name = "table", .rows_by = 0}, {"y", Access::write}};
  static constexpr auto& attrs = padding_attr;
  static void rule(RuleOf<Embedding> s);
  static void gradient(GradientOf<Embedding> g);
  static void cost(ShapeOf<Embedding> s, OpCost& c);
};

struct EmbeddingWeightGrad {
  static constexpr const char* kind = "embedding_weight_grad";
  static constexpr const char* help = "adds the rows of dy into the table's gradient";
  static constexpr OperandDef operands[] = {{"tokens"}, {"dy"}, {"dtable", Access::update}};
  static constexpr auto& attrs = padding_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<EmbeddingWeightGrad> s);
  static void cost(ShapeOf<EmbeddingWeightGrad> s, OpCost& c);
};

struct AddPosition {
  static constexpr const char* kind = "add_position";
  static constexpr const char* at_position = "add_position_at";
  static constexpr const char* help = "adds the row of a table that belongs to each position";
  static constexpr OperandDef operands[] = {{"x"}, {"table"}, {"y", Access::write}, positions_operand};
  static void rule(RuleOf<AddPosition> s);
  static void gradient(GradientOf<AddPosition> g);
};

struct AddPositionAt {
  static constexpr const char* kind = "add_position_at";
  static constexpr const char* help =
      "add_position from the position that is given on; behind the table its last row";
  static constexpr OperandDef operands[] = {{"x"}, {"table"}, {"position"}, {"y", Access::write}};
  static void rule(RuleOf<AddPositionAt> s);
};

struct PositionWeightGrad {
  static constexpr const char* kind = "position_weight_grad";
  static constexpr const char* help = "adds dy, summed over the batch, into the position table's gradient";
  static constexpr OperandDef operands[] = {{"dy"}, positions_operand, {"dtable", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<PositionWeightGrad> s);
};

}  // namespace prun::ops
