#include <vector>

#include "base/require.hpp"
#include "delta_rule/shapes.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/delta_heads.hpp"

namespace prun::ops {
namespace {

// Sets operand `to` to `from` with another last dimension and, of the heads, `times` as many.
void set_last(OpShape& s, int from, int to, std::int64_t times, const Dim& last) {
  const OperandShape x = s.operand[from];
  s.like(to, from);
  s.operand[to].dims[x.rank - 2].extent *= times;
  s.operand[to].dims[x.rank - 1] = last;
  s.whole(from, x.rank - 1, x.rank);
  s.whole(last.name);
}

void set_mixed_parts(RuleOf<SplitMixed> s) {
  const OperandShape& mixed = s["x"];
  const std::int64_t channels = s.integer("channels"), values = s.integer("values"),
                     rest = mixed.dims[mixed.rank - 1].extent - channels;
  require(mixed.rank >= 4 && channels >= 1 && values >= 1 && rest >= values && rest % values == 0,
          SplitMixed::kind,
          " takes [batch, seq, heads.., mixed], with `channels` of them first and gates of `values` behind");
  set_last(s, s.at("x"), s.at("y"), 1, {"channels", channels});
  set_last(s, s.at("x"), s.at("gate"), values, {"value_dim", rest / values});
}

// `of` has the attributes.
template <class Op>
void set_delta_heads(RuleOf<DeltaHeads> s, const ShapeOf<Op>& of) {
  const char* const op = Op::kind;
  const OperandShape& from = s["x"];
  const std::int64_t key = of.integer("key_dim"), values = of.integer("values"),
                     rest = from.dims[from.rank - 1].extent - 2 * key;
  require(from.rank >= 4 && key >= 1 && values >= 1 && rest >= values && rest % values == 0, op,
          " takes [batch, seq, heads.., channels]: a query, a key, and `values` values behind them");
  set_last(s, s.at("x"), s.at("q"), 1, {"key_dim", key});
  s.like("k", "q");
  set_last(s, s.at("x"), s.at("v"), values, {"value_dim", rest / values});
}

// Checks numbers x [batch, seq, heads.., 2 n], and the two vectors of n times as many heads.
template <class Op>
void check_gates(const ShapeOf<Op>& s) {
  const OperandShape &of = s["x"], &rate = s["rate"], &bias = s["bias"];
  const int heads = of.rank - 3;
  bool fits = heads >= 1 && rate.rank == heads && bias.rank == heads && rate.dtype == bias.dtype;
  for (int d = 0; fits && d < heads; ++d)
    fits =
        rate.dims[d] == bias.dims[d] && rate.dims[d].name == of.dims[2 + d].name &&
        2 * rate.dims[d].extent == of.dims[2 + d].extent * (d + 1 < heads ? 2 : of.dims[of.rank - 1].extent);
  require(fits, Op::kind,
          " takes [batch, seq, heads.., 2 n] and two vectors [heads..] of n times as many heads");
}

// Sets what a position has of each value head.
void set_gate(RuleOf<DeltaGates> s, OperandOf<DeltaGates> to) {
  const OperandShape &of = s["x"], &rate = s["rate"];
  OperandShape gate = of;
  gate.dtype = OpShape::statistics(of.dtype);
  gate.rank = of.rank - 1;
  gate.dims[gate.rank - 1] = rate.dims[rate.rank - 1];
  gate.present = true;
  s[to] = gate;
}

template <class Op>
void mark_gates(RuleOf<Op> s) {
  s.whole("x", s["x"].rank - 1, s["x"].rank);
}

}  // namespace

void SplitMixed::rule(RuleOf<SplitMixed> s) {
  set_mixed_parts(s);
  s.pass_partial({"x"});
}

void SplitMixed::gradient(GradientOf<SplitMixed> g) {
  input_gradient<JoinMixed>(g, {"x"}, {{"y", g.arrived("y")}, {"gate", g.arrived("gate")}});
}

void JoinMixed::rule(RuleOf<JoinMixed> s) {
  const OperandShape &y = s["y"], &gate = s["gate"];
  const int rank = y.rank;
  require(rank >= 4 && gate.rank == rank && shares_heads(y, gate, rank - 1) && y.dtype == gate.dtype, kind,
          " takes [batch, seq, heads.., channels], and gates of as many heads or a multiple");
  const std::int64_t rest = gate.dims[rank - 2].extent / y.dims[rank - 2].extent * gate.dims[rank - 1].extent;
  s.whole("gate", rank - 1, rank);
  set_last(s, s.at("y"), s.at("x"), 1, {"mixed", y.dims[rank - 1].extent + rest});
  s.pass_partial({"y", "gate"});
}

void DeltaHeads::rule(RuleOf<DeltaHeads> s) { set_delta_heads(s, s); }

void DeltaHeads::gradient(GradientOf<DeltaHeads> g) {
  input_gradient<DeltaHeadsGrad>(
      g, {"x"}, {{"dq", g.arrived("q")}, {"dk", g.arrived("k")}, {"dv", g.arrived("v")}},
      {{"key_dim", g.attr("key_dim")}, {"values", g.attr("values")}, {"eps", g.attr("eps")}});
}

void DeltaHeadsGrad::rule(RuleOf<DeltaHeadsGrad> s) {
  OpShape shape = s;
  const RuleOf<DeltaHeads> forward(shape);
  forward["x"] = s["x"];
  set_delta_heads(forward, s);
  const auto fits = [](const OperandShape& gradient, const OperandShape& result) {
    return gradient.rank == result.rank && begins_alike(gradient, result, gradient.rank);
  };
  require(fits(s["dq"], forward["q"]) && fits(s["dk"], forward["k"]) && fits(s["dv"], forward["v"]), kind,
          " takes gradients of what delta_heads gives");
  s.like("dx", "x");
  s.whole("x", s["x"].rank - 1, s["x"].rank);
  s.whole("dq", s["dq"].rank - 1, s["dq"].rank);
  s.whole("dv", s["dv"].rank - 1, s["dv"].rank);
}

void DeltaGates::rule(RuleOf<DeltaGates> s) {
  check_gates(s);
  set_gate(s, "g");
  set_gate(s, "beta");
  mark_gates(s);
}

void DeltaGates::gradient(GradientOf<DeltaGates> g) {
  input_gradient<DeltaGatesInputGrad>(g, {"x"}, {{"dg", g.arrived("g")}, {"dbeta", g.arrived("beta")}});
  weight_gradient<DeltaGatesWeightGrad>(g, {"rate", "bias"}, {{"dg", g.arrived("g")}});
}

void DeltaGatesInputGrad::rule(RuleOf<DeltaGatesInputGrad> s) {
  check_gates(s);
  s.like("dx", "x");
  mark_gates(s);
}

void DeltaGatesWeightGrad::rule(RuleOf<DeltaGatesWeightGrad> s) {
  check_gates(s);
  s.sum("dg", 0, 2);
  mark_gates(s);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> delta_heads_ops() {
  using namespace ops;
  return {op_def<SplitMixed>(),          op_def<JoinMixed>(),  op_def<DeltaHeads>(),
          op_def<DeltaHeadsGrad>(),      op_def<DeltaGates>(), op_def<DeltaGatesInputGrad>(),
          op_def<DeltaGatesWeightGrad>()};
}

}  // namespace prun
