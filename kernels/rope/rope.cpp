#include <vector>

#include "prun/ops/rope.hpp"
#include "rules/at_position.hpp"
#include "rules/packed_heads.hpp"
#include "rules/positions.hpp"
#include "rules/turn.hpp"

namespace prun::ops {
namespace {

constexpr std::int64_t by_list = 4;

// Checks operand x, which has whole heads.
template <class Op>
void check_turned(const ShapeOf<Op>& s, OperandOf<Op> x) {
  const char* const op = Op::kind;
  const OperandShape& heads = s[x];
  require(heads.rank == 5 && heads.dims[4].extent % 2 == 0, op,
          " takes [batch, seq, heads, packed, head_dim] with an even head_dim");
  check_scaling(s.integer("scaling"), op, by_list);
  const std::int64_t turned = s.integer("turned");
  require(turned >= 0 && turned % 2 == 0 && turned <= heads.dims[4].extent && s.real("query_growth") >= 0, op,
          " turns an even number of a head's channels, and queries do not shrink with the position");
  if (s.integer("scaling") != by_list) return;
  const auto pairs = static_cast<std::size_t>((turned > 0 ? turned : heads.dims[4].extent) / 2);
  require(pairs <= most_listed, op, " has numbers of ", most_listed, " pairs, and ", pairs, " turn");
  const OpShape& shape = s;
  for (std::size_t i = 0; i < pairs; ++i)
    require(shape.attrs[single_turn_attrs + i].f > 0, op, " slows pairs down by numbers above 0");
}

// Emits a gradient op, which has all attributes of the op that turned.
template <class Emitted, class Op, std::size_t n, std::size_t... pair>
void turn_heads_back(const GradientOf<Op>& g, const OperandOf<Op> (&targets)[n],
                     std::index_sequence<pair...>) {
  turn_back<Emitted>(g, targets, {{"dq", g.arrived("q")}, {"dk", g.arrived("k")}, {"dv", g.arrived("v")}},
                     "turned", "interleaved", "query_growth", "turned_scale", slower_names.of[pair]...);
}
constexpr std::make_index_sequence<most_listed> all_pairs = {};

}  // namespace

void Rope::rule(RuleOf<Rope> s) {
  check_turned(s, "x");
  set_apart(s, kind, s.at("x"), {s.at("q"), s.at("k"), s.at("v")});
  check_positions(s, s.at("x"), s.at("positions"), kind);
  s.pass_partial({"x"});
}

void Rope::gradient(GradientOf<Rope> g) { turn_heads_back<RopeGrad>(g, {"x"}, all_pairs); }

void RopeAt::rule(RuleOf<RopeAt> s) {
  check_turned(s, "x");
  require_position(s["x"], s["position"], kind);
  set_apart(s, kind, s.at("x"), {s.at("q"), s.at("k"), s.at("v")});
  s.pass_partial({"x"});
}

void RopeGrad::rule(RuleOf<RopeGrad> s) {
  check_turned(s, "dq");
  set_together(s, kind, {s.at("dq"), s.at("dk"), s.at("dv")}, s.at("dx"));
  check_positions(s, s.at("dq"), s.at("positions"), kind);
  s.pass_partial({"dq", "dk", "dv"});
}

void RopeApart::rule(RuleOf<RopeApart> s) {
  check_turned(s, "x_first");
  set_apart_of_two(s, kind, s.at("x_first"), s.at("x_last"), {s.at("q"), s.at("k"), s.at("v")});
  check_positions(s, s.at("x_first"), s.at("positions"), kind);
  s.pass_partial({"x_first", "x_last"});
}

void RopeApart::gradient(GradientOf<RopeApart> g) {
  turn_heads_back<RopeApartGrad>(g, {"x_first", "x_last"}, all_pairs);
}

void RopeApartGrad::rule(RuleOf<RopeApartGrad> s) {
  check_turned(s, "dq");
  set_two_together(s, kind, {s.at("dq"), s.at("dk"), s.at("dv")}, s.at("dx_first"), s.at("dx_last"));
  check_positions(s, s.at("dq"), s.at("positions"), kind);
  s.pass_partial({"dq", "dk", "dv"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> rope_ops() {
  using namespace ops;
  return {op_def<Rope>(), op_def<RopeAt>(), op_def<RopeGrad>(), op_def<RopeApart>(), op_def<RopeApartGrad>()};
}

}  // namespace prun
