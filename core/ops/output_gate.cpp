// Defines output_gate, which says of each element how much of it counts: y = x * sigmoid(gate) or, with
// `silu`, x * silu(gate). split_gate takes the gates of heads out of what a projection gives, where each
// slot, such as a query, has its gate behind it; join_gate is its gradient's way back.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef gate_attrs[] = {int_attr("silu", 0)};

bool alike(const OperandShape& a, const OperandShape& b) {
  bool so = a.rank == b.rank && a.dtype == b.dtype;
  for (int d = 0; so && d < a.rank; ++d) so = a.dims[d] == b.dims[d];
  return so;
}

struct OutputGate {
  static constexpr const char* kind = "output_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x * sigmoid(gate), or x * silu(gate)";
  static constexpr OperandDef operands[] = {{"x"}, {"gate"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = gate_attrs;
  static void rule(OpShape& s) {
    require(alike(s.operand[0], s.operand[1]), kind, " takes x and a gate alike");
    s.like(2, 0);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) {
    const AttrValue silu{"silu", g.attr("silu")};
    g.input(0, "output_gate", {g.arrived(2), g.operand(1)}, {silu});
    g.input(1, "output_gate_grad", {g.arrived(2), g.operand(0), g.operand(1)}, {silu});
  }
};

struct OutputGateGrad {
  static constexpr const char* kind = "output_gate_grad";
  static constexpr const char* help = "dgate of output_gate";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"gate"}, {"dgate", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = gate_attrs;
  static void rule(OpShape& s) {
    require(alike(s.operand[0], s.operand[2]) && alike(s.operand[1], s.operand[2]), kind,
            " takes dy, x and a gate alike");
    s.like(3, 2);
    s.pass_partial({1});
  }
};

// Sets operand `to` to `from` with so many slots, each as many times `given` as `taken`.
void set_slots(OpShape& s, int from, int to, std::int64_t given, std::int64_t taken, const char* op) {
  const OperandShape& x = s.operand[from];
  require(x.rank >= 2 && x.dims[x.rank - 2].extent % given == 0, op,
          " takes [.., slots, width], in pairs of a slot and its gate");
  s.like(to, from);
  s.operand[to].dims[x.rank - 2].extent = x.dims[x.rank - 2].extent / given * taken;
}

struct SplitGate {
  static constexpr const char* kind = "split_gate";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "slots and their gates, out of slots each of which has one behind it";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}, {"gate", Access::write}};
  static void rule(OpShape& s) {
    set_slots(s, 0, 1, 2, 1, kind);
    set_slots(s, 0, 2, 2, 1, kind);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) { g.input(0, "join_gate", {g.arrived(1), g.arrived(2)}); }
};

struct JoinGate {
  static constexpr const char* kind = "join_gate";
  static constexpr const char* help = "what split_gate took apart, together: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"gate"}, {"x", Access::write}};
  static void rule(OpShape& s) {
    require(alike(s.operand[0], s.operand[1]), kind, " takes slots and gates alike");
    set_slots(s, 0, 2, 1, 2, kind);
    s.pass_partial({0, 1});
  }
};

}  // namespace

std::vector<OpDef> output_gate_ops() {
  return {op_def<OutputGate>(), op_def<OutputGateGrad>(), op_def<SplitGate>(), op_def<JoinGate>()};
}

}  // namespace prun
