#include <vector>

#include "prun/ops/bias.hpp"

namespace prun::ops {

void BiasGrad::rule(RuleOf<BiasGrad> s) { s.sum("dy", 0, s["dy"].rank - s["dbias"].rank); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> bias_ops() {
  using namespace ops;
  return {op_def<BiasGrad>()};
}

}  // namespace prun
