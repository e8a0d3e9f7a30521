#include <algorithm>
#include <vector>

#include "prun/ops/whole_update.hpp"
#include "rules/eight_bit_rule.hpp"

namespace prun::ops {

void Momentum::rule(RuleOf<Momentum> s) {
  s.like("direction", "gradient");
  s["direction"].dtype = OpShape::statistics(s["gradient"].dtype);
  keep_blocks_whole(s, s.at("m"), s.at("scale"));
}

// It reads nothing of the parameter, which only says which elements these are.
void Momentum::cost(ShapeOf<Momentum> s, OpCost& c) { c.bytes -= s["parameter"].bytes(); }

void Orthogonalize::rule(RuleOf<Orthogonalize> s) {
  s.like("y", "x");
  s.whole("x", static_cast<int>(s.integer("batch")), s["x"].rank);
}

void Orthogonalize::cost(ShapeOf<Orthogonalize> s, OpCost& c) {
  const OperandShape& x = s["x"];
  const int batch = static_cast<int>(s.integer("batch")), columns = static_cast<int>(s.integer("columns"));
  double matrices = 1, wide = 1, inner = 1;
  for (int d = 0; d < batch; ++d) matrices *= x.dims[d].extent;
  for (int d = x.rank - columns; d < x.rank; ++d) wide *= x.dims[d].extent;
  for (int d = batch + 1; d < x.rank - columns; ++d) inner *= x.dims[d].extent;
  constexpr int cuts = 3;
  const std::int64_t at[cuts] = {s.integer("cut1"), s.integer("cut2"), s.integer("cut3")};
  std::int64_t begin = 0;
  for (int cut = 0; cut <= cuts; ++cut) {
    const bool last = cut == cuts || at[cut] == 0;
    const std::int64_t end = last ? x.dims[batch].extent : at[cut];
    const double rows = static_cast<double>(end - begin) * inner, least = std::min(rows, wide);
    c.flops += matrices * static_cast<double>(s.integer("steps")) *
               (4 * least * rows * wide + 2 * least * least * least);
    begin = end;
    if (last) break;
  }
  if (s.integer("ranks") > 0) c.flops /= s.integer("ranks");
  c.bytes -= s["part"].bytes();
}

void FactoredSquares::rule(RuleOf<FactoredSquares> s) {
  const OperandShape x = s["gradient"];
  const int batch = static_cast<int>(s.integer("batch")),
            rows = x.rank - static_cast<int>(s.integer("columns"));
  const DType type = OpShape::statistics(x.dtype);
  std::vector<Dim> columns(x.dims, x.dims + batch);
  columns.insert(columns.end(), x.dims + rows, x.dims + x.rank);
  s.output("rows", type, x.dims, rows);
  s.output("columns", type, columns.data(), static_cast<int>(columns.size()));
  s.output("total", type, x.dims, batch);
  s.sum("gradient", batch, x.rank);
}

void MeanUpdate::rule(RuleOf<MeanUpdate>) {}

void FactoredDirection::rule(RuleOf<FactoredDirection> s) {
  s.like("direction", "gradient");
  s["direction"].dtype = OpShape::statistics(s["gradient"].dtype);
  s.scalar("squares", DType::f64);
  s.sum("gradient", 0, s["gradient"].rank);
}

void SquareSum::rule(RuleOf<SquareSum> s) {
  s.scalar("sum", DType::f64);
  s.sum("x", 0, s["x"].rank);
}

void AdafactorFactor::rule(RuleOf<AdafactorFactor> s) { s.scalar("factor", DType::f64); }

void ScaleBy::rule(RuleOf<ScaleBy> s) { s.like("y", "x"); }

void Blank::rule(RuleOf<Blank>) {}

void Unpack::rule(RuleOf<Unpack>) {}

void Unpack::cost(ShapeOf<Unpack> s, OpCost& c) { c.bytes = 2 * static_cast<double>(s["tensor"].bytes()); }

void Pack::rule(RuleOf<Pack>) {}

void Pack::cost(ShapeOf<Pack> s, OpCost& c) {
  c.bytes = 2 * static_cast<double>(std::min(s["tensor"].bytes(), s["packed"].bytes()));
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> whole_update_ops() {
  using namespace ops;
  return {op_def<Momentum>(),
          op_def<Orthogonalize>(),
          op_def<FactoredSquares>(),
          op_def<MeanUpdate>(),
          op_def<FactoredDirection>(),
          op_def<SquareSum>(),
          op_def<AdafactorFactor>(),
          op_def<ScaleBy>(),
          op_def<Blank>(),
          op_def<Unpack>(),
          op_def<Pack>()};
}

}  // namespace prun
