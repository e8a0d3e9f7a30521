#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/dropout.hpp"
#include "rules/positions.hpp"

namespace prun::ops {

void Dropout::rule(RuleOf<Dropout> s) {
  require(s["x"].rank >= 3 && s["samples"].rank == 1 && s["samples"].dtype == DType::i64,
          "dropout takes x [batch, seq, width] and i64 samples [batch]; the width may be of several "
          "dimensions");
  require(s.real("p") >= 0 && s.real("p") < 1, "dropout: p lies in [0, 1)");
  check_positions(s, s.at("x"), s.at("positions"), kind);
  s.like("y", "x");
  s.whole("x", 3, s["x"].rank);
  s.pass_partial({"x"});
}

void Dropout::gradient(GradientOf<Dropout> g) {
  input_gradient<Dropout>(g, {"x"}, {{"x", g.arrived("y")}},
                          {{"p", g.attr("p")}, {"stream", g.attr("stream")}});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> dropout_ops() {
  using namespace ops;
  return {op_def<Dropout>()};
}

}  // namespace prun
