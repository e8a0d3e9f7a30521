#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/gate.hpp"

namespace prun::ops {
namespace {

void check_gate(const OperandShape& x, const OperandShape& gate, const char* op) {
  bool fits =
      x.rank >= 2 && gate.rank == x.rank && gate.dtype == x.dtype && gate.dims[x.rank - 1].extent == 1;
  for (int i = 0; fits && i + 1 < x.rank; ++i) fits = x.dims[i] == gate.dims[i];
  require(fits, op, " takes x [..., width] and a gate [..., 1] of its type");
}

}  // namespace

void SigmoidGate::rule(RuleOf<SigmoidGate> s) {
  check_gate(s["x"], s["gate"], kind);
  s.like("y", "x");
  s.pass_partial({"x"});
}

void SigmoidGate::gradient(GradientOf<SigmoidGate> g) {
  input_gradient<SigmoidGate>(g, {"x"}, {{"x", g.arrived("y")}});
  input_gradient<SigmoidGateGrad>(g, {"gate"}, {{"dy", g.arrived("y")}});
}

void SigmoidGateGrad::rule(RuleOf<SigmoidGateGrad> s) {
  const int last = s["x"].rank - 1;
  check_gate(s["x"], s["gate"], kind);
  s.like("dgate", "gate");
  s.sum(s["x"].dims[last].name);
  s.whole(s["gate"].dims[last].name);
  s.pass_partial({"x"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> gate_ops() {
  using namespace ops;
  return {op_def<SigmoidGate>(), op_def<SigmoidGateGrad>()};
}

}  // namespace prun
