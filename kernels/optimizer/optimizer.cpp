#include "prun/ops/optimizer.hpp"

#include <vector>

#include "rules/eight_bit_rule.hpp"

namespace prun::ops {

void SumSquares::rule(RuleOf<SumSquares> s) { s.sum("x", 0, s["x"].rank); }

void ClipFactor::rule(RuleOf<ClipFactor> s) {
  s.scalar("norm", DType::f64);
  s.scalar("clip", DType::f64);
  s.scalar("keep", DType::f64);
}

void CountNonFinite::rule(RuleOf<CountNonFinite> s) {
  s.sum("x", 0, s["x"].rank);
  s.pass_partial({"x"});  // since a summand that is not finite makes the sum so
}

// For a step that is kept it reads nothing.
void CountNonFinite::cost(ShapeOf<CountNonFinite>, OpCost& c) { c.bytes = 0; }

void AdamW::rule(RuleOf<AdamW> s) { keep_blocks_whole(s, s.at("m"), s.at("m_scale")); }

void AdamWKeepingOld::rule(RuleOf<AdamWKeepingOld> s) {
  s.like("old_parameter", "parameter");
  s.like("old_m", "m");
  s.like("old_v", "v");
  if (s.has("master")) s.like("old_master", "master");
}

void Sgd::rule(RuleOf<Sgd>) {}

void AverageWeights::rule(RuleOf<AverageWeights>) {}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> optimizer_ops() {
  using namespace ops;
  return {op_def<SumSquares>(),      op_def<ClipFactor>(), op_def<CountNonFinite>(), op_def<AdamW>(),
          op_def<AdamWKeepingOld>(), op_def<Sgd>(),        op_def<AverageWeights>()};
}

}  // namespace prun
