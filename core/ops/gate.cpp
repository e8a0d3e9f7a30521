// Defines sigmoid_gate: one number for each position says how much of it counts.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

void check_gate(const OperandShape& x, const OperandShape& gate, const char* op) {
  bool fits =
      x.rank >= 2 && gate.rank == x.rank && gate.dtype == x.dtype && gate.dims[x.rank - 1].extent == 1;
  for (int i = 0; fits && i + 1 < x.rank; ++i) fits = x.dims[i] == gate.dims[i];
  require(fits, op, " takes x [..., width] and a gate [..., 1] of its type");
}

struct SigmoidGate {
  static constexpr const char* kind = "sigmoid_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = sigmoid(gate) * x, one gate a position";
  static constexpr OperandDef operands[] = {{"x"}, {"gate"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    check_gate(s.operand[0], s.operand[1], kind);
    s.like(2, 0);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    g.input(0, "sigmoid_gate", {g.arrived(2), g.operand(1)});
    g.input(1, "sigmoid_gate_grad", {g.arrived(2), g.operand(0), g.operand(1)});
  }
};

struct SigmoidGateGrad {
  static constexpr const char* kind = "sigmoid_gate_grad";
  static constexpr const char* help = "dgate of sigmoid_gate";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"gate"}, {"dgate", Access::write}};
  static void rule(OpShape& s) {
    const int last = s.operand[1].rank - 1;
    check_gate(s.operand[1], s.operand[2], kind);
    s.like(3, 2);
    s.sum(s.operand[1].dims[last].name);
    s.whole(s.operand[2].dims[last].name);
    s.pass_partial({1});
  }
};

}  // namespace

std::vector<OpDef> gate_ops() { return {op_def<SigmoidGate>(), op_def<SigmoidGateGrad>()}; }

}  // namespace prun
