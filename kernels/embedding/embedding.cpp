#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/embedding.hpp"
#include "rules/at_position.hpp"
#include "rules/positions.hpp"

namespace prun::ops {

void Embedding::rule(RuleOf<Embedding> s) {
  const OperandShape &tokens = s["tokens"], &table = s["table"];
  require(tokens.rank == 2 && tokens.dtype == DType::i32 && table.rank == 2,
          "embedding takes i32 tokens [batch, seq] and a table [rows, width]");
  const Dim dims[] = {tokens.dims[0], tokens.dims[1], table.dims[1]};
  s.output("y", table.dtype, dims, 3);
  s.sum("table", 0, 1);
}

void Embedding::gradient(GradientOf<Embedding> g) {
  weight_gradient<EmbeddingWeightGrad>(g, {"table"}, {{"dy", g.arrived("y")}},
                                       {{"padding", g.attr("padding")}});
}

void Embedding::cost(ShapeOf<Embedding> s, OpCost& c) { c.bytes = s["tokens"].bytes() + 2 * s["y"].bytes(); }

void EmbeddingWeightGrad::rule(RuleOf<EmbeddingWeightGrad> s) { s.sum("dy", 0, 2); }

void EmbeddingWeightGrad::cost(ShapeOf<EmbeddingWeightGrad> s, OpCost& c) {
  c.bytes = s["tokens"].bytes() + 3 * s["dy"].bytes();
}

void AddPosition::rule(RuleOf<AddPosition> s) {
  const OperandShape &x = s["x"], &table = s["table"];
  require(x.rank == 3 && table.rank == 2 && table.dims[0].extent >= x.dims[1].extent,
          "add_position takes x [batch, seq, width] and a table of at least seq rows");
  check_positions(s, s.at("x"), s.at("positions"), kind);
  s.like("y", "x");
  s.whole("table", 0, 1);
}

void AddPosition::gradient(GradientOf<AddPosition> g) {
  g.pass("x", g.arrived("y"));
  weight_gradient<PositionWeightGrad>(g, {"table"}, {{"dy", g.arrived("y")}});
}

void AddPositionAt::rule(RuleOf<AddPositionAt> s) {
  const OperandShape &x = s["x"], &table = s["table"];
  require(x.rank == 3 && table.rank == 2, "add_position_at takes x [batch, seq, width] and a table of rows");
  require_position(x, s["position"], kind);
  s.like("y", "x");
  s.whole("table", 0, 1);
}

void PositionWeightGrad::rule(RuleOf<PositionWeightGrad> s) {
  check_positions(s, s.at("dy"), s.at("positions"), kind);
  s.sum("dy", 0, 2);
  s.whole("dtable", 0, 1);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> embedding_ops() {
  using namespace ops;
  return {op_def<Embedding>(), op_def<EmbeddingWeightGrad>(), op_def<AddPosition>(), op_def<AddPositionAt>(),
          op_def<PositionWeightGrad>()};
}

}  // namespace prun
