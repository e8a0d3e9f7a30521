#include <vector>

#include "base/require.hpp"
#include "prun/ops/summands.hpp"

namespace prun::ops {
namespace {

std::int64_t elements_of(const OperandShape& x) {
  std::int64_t elements = 1;
  for (int d = 0; d < x.rank; ++d) elements *= x.dims[d].extent;
  return elements;
}

}  // namespace

void SummandSquares::rule(RuleOf<SummandSquares> s) {
  s.sum("x", 0, s["x"].rank);
  s.pass_partial({"x"});
}

void KeepSummand::rule(RuleOf<KeepSummand> s) {
  require(elements_of(s["summands"]) % elements_of(s["x"]) == 0 && s["x"].dtype == s["summands"].dtype,
          "keep_summand takes rows that are as long as x, and of its type");
}

void MomentumSummand::rule(RuleOf<MomentumSummand> s) {
  require(elements_of(s["gradient"]) % elements_of(s["m"]) == 0,
          "momentum_summand takes rows of gradients that are as long as m");
  require(s["m"].dtype == OpShape::statistics(s["gradient"].dtype),
          "momentum_summand takes m in the type that sums are in: precision.moments = \"fp32\", or \"fp64\" "
          "where that is computed in");
  s.like("summand", "gradient");
  s["summand"].dtype = s["m"].dtype;
  s.pass_partial({"gradient"});
}

void FrozenDirection::rule(RuleOf<FrozenDirection> s) {
  require(elements_of(s["sum"]) % elements_of(s["m"]) == 0 && elements_of(s["m"]) == elements_of(s["v"]) &&
              s["sum"].dtype == s["m"].dtype && s["sum"].dtype == s["v"].dtype,
          "frozen_direction takes m and v of one length, and a sum of their type that is as long, or rows of "
          "which the sum is to be taken");
  s.like("direction", "m");
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> summands_ops() {
  using namespace ops;
  return {op_def<SummandSquares>(), op_def<KeepSummand>(), op_def<MomentumSummand>(),
          op_def<FrozenDirection>()};
}

}  // namespace prun
