// The op embedding computes y[b, s] = table[tokens[b, s]], and add_position y[b, s] = x[b, s] + table[s].
// Both gradients add rows into the table's accumulator. A vocabulary shard contributes only the tokens it
// holds (its `start` says which), so a table sharded on its rows gives a partial sum. The row of the token
// `padding` gets no gradient by being looked up.
#include <vector>

#include "base/require.hpp"
#include "ops/at_position.hpp"
#include "ops/positions.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef padding_attr[] = {later(int_attr("padding", -1))};

struct Embedding {
  static constexpr const char* kind = "embedding";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "rows of a table, looked up by token";
  static constexpr OperandDef operands[] = {
      {"tokens"}, {.name = "table", .rows_by = 0}, {"y", Access::write}};
  static constexpr auto& attrs = padding_attr;
  static void rule(OpShape& s) {
    const OperandShape &tokens = s.operand[0], &table = s.operand[1];
    require(tokens.rank == 2 && tokens.dtype == DType::i32 && table.rank == 2,
            "embedding takes i32 tokens [batch, seq] and a table [rows, width]");
    const Dim dims[] = {tokens.dims[0], tokens.dims[1], table.dims[1]};
    s.output(2, table.dtype, dims, 3);
    s.sum(1, 0, 1);
  }
  static void gradient(const Gradient& g) {
    g.weight({1}, "embedding_weight_grad", {g.operand(0), g.arrived(2)}, {{"padding", g.attr("padding")}});
  }
  static void cost(const OpShape& s, OpCost& c) { c.bytes = s.operand[0].bytes() + 2 * s.operand[2].bytes(); }
};

struct EmbeddingWeightGrad {
  static constexpr const char* kind = "embedding_weight_grad";
  static constexpr const char* help = "adds the rows of dy into the table's gradient";
  static constexpr OperandDef operands[] = {{"tokens"}, {"dy"}, {"dtable", Access::update}};
  static constexpr auto& attrs = padding_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(1, 0, 2); }
  static void cost(const OpShape& s, OpCost& c) { c.bytes = s.operand[0].bytes() + 3 * s.operand[1].bytes(); }
};

struct AddPosition {
  static constexpr const char* kind = "add_position";
  static constexpr const char* at_position = "add_position_at";
  static constexpr const char* help = "adds the row of a table that belongs to each position";
  static constexpr OperandDef operands[] = {{"x"}, {"table"}, {"y", Access::write}, positions_operand};
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &table = s.operand[1];
    require(x.rank == 3 && table.rank == 2 && table.dims[0].extent >= x.dims[1].extent,
            "add_position takes x [batch, seq, width] and a table of at least seq rows");
    check_positions(s, 0, 3, kind);
    s.like(2, 0);
    s.whole(1, 0, 1);
  }
  static void gradient(const Gradient& g) {
    g.pass(0, g.arrived(2));
    g.weight({1}, "position_weight_grad", {g.arrived(2), g.operand(3)});
  }
};

struct AddPositionAt {
  static constexpr const char* kind = "add_position_at";
  static constexpr const char* help =
      "add_position from the position that is given on; behind the table its last row";
  static constexpr OperandDef operands[] = {{"x"}, {"table"}, {"position"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape &x = s.operand[0], &table = s.operand[1];
    require(x.rank == 3 && table.rank == 2,
            "add_position_at takes x [batch, seq, width] and a table of rows");
    require_position(x, s.operand[2], kind);
    s.like(3, 0);
    s.whole(1, 0, 1);
  }
};

struct PositionWeightGrad {
  static constexpr const char* kind = "position_weight_grad";
  static constexpr const char* help = "adds dy, summed over the batch, into the position table's gradient";
  static constexpr OperandDef operands[] = {{"dy"}, positions_operand, {"dtable", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    check_positions(s, 0, 1, kind);
    s.sum(0, 0, 2);
    s.whole(2, 0, 1);
  }
};

}  // namespace

std::vector<OpDef> embedding_ops() {
  return {op_def<Embedding>(), op_def<EmbeddingWeightGrad>(), op_def<AddPosition>(), op_def<AddPositionAt>(),
          op_def<PositionWeightGrad>()};
}

}  // namespace prun
