#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/output_gate.hpp"

namespace prun::ops {
namespace {

bool alike(const OperandShape& a, const OperandShape& b) {
  bool so = a.rank == b.rank && a.dtype == b.dtype;
  for (int d = 0; so && d < a.rank; ++d) so = a.dims[d] == b.dims[d];
  return so;
}

// Sets operand `to` to `from` with so many slots, each as many times `given` as `taken`.
void set_slots(OpShape& s, int from, int to, std::int64_t given, std::int64_t taken, const char* op) {
  const OperandShape& x = s.operand[from];
  require(x.rank >= 2 && x.dims[x.rank - 2].extent % given == 0, op,
          " takes [.., slots, width], in pairs of a slot and its gate");
  s.like(to, from);
  s.operand[to].dims[x.rank - 2].extent = x.dims[x.rank - 2].extent / given * taken;
}

}  // namespace

void OutputGate::rule(RuleOf<OutputGate> s) {
  require(alike(s["x"], s["gate"]), kind, " takes x and a gate alike");
  s.like("y", "x");
  s.pass_partial({"x"});
}

void OutputGate::gradient(GradientOf<OutputGate> g) {
  const AttrValue silu{"silu", g.attr("silu")};
  input_gradient<OutputGate>(g, {"x"}, {{"x", g.arrived("y")}}, {silu});
  input_gradient<OutputGateGrad>(g, {"gate"}, {{"dy", g.arrived("y")}}, {silu});
}

void OutputGateGrad::rule(RuleOf<OutputGateGrad> s) {
  require(alike(s["dy"], s["gate"]) && alike(s["x"], s["gate"]), kind, " takes dy, x and a gate alike");
  s.like("dgate", "gate");
  s.pass_partial({"x"});
}

void SplitGate::rule(RuleOf<SplitGate> s) {
  set_slots(s, s.at("x"), s.at("y"), 2, 1, kind);
  set_slots(s, s.at("x"), s.at("gate"), 2, 1, kind);
  s.pass_partial({"x"});
}

void SplitGate::gradient(GradientOf<SplitGate> g) {
  input_gradient<JoinGate>(g, {"x"}, {{"y", g.arrived("y")}, {"gate", g.arrived("gate")}});
}

void JoinGate::rule(RuleOf<JoinGate> s) {
  require(alike(s["y"], s["gate"]), kind, " takes slots and gates alike");
  set_slots(s, s.at("y"), s.at("x"), 1, 2, kind);
  s.pass_partial({"y", "gate"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> output_gate_ops() {
  using namespace ops;
  return {op_def<OutputGate>(), op_def<OutputGateGrad>(), op_def<SplitGate>(), op_def<JoinGate>()};
}

}  // namespace prun
