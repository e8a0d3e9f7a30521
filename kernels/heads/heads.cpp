#include <vector>

#include "prun/named_gradient.hpp"
#include "prun/ops/heads.hpp"
#include "rules/packed_heads.hpp"

namespace prun::ops {

void SplitHeads::rule(RuleOf<SplitHeads> s) {
  set_apart(s, kind, s.at("x"), {s.at("q"), s.at("k"), s.at("v")});
  s.pass_partial({"x"});
}

void SplitHeads::gradient(GradientOf<SplitHeads> g) {
  input_gradient<JoinHeads>(g, {"x"}, {{"q", g.arrived("q")}, {"k", g.arrived("k")}, {"v", g.arrived("v")}});
}

void JoinHeads::rule(RuleOf<JoinHeads> s) {
  set_together(s, kind, {s.at("q"), s.at("k"), s.at("v")}, s.at("x"));
  s.pass_partial({"q", "k", "v"});
}

void JoinHeads::gradient(GradientOf<JoinHeads> g) {
  input_gradient<SplitHeads>(g, {"q", "k", "v"}, {{"x", g.arrived("x")}});
}

void SplitHeadsApart::rule(RuleOf<SplitHeadsApart> s) {
  set_apart_of_two(s, kind, s.at("x_first"), s.at("x_last"), {s.at("q"), s.at("k"), s.at("v")});
  s.pass_partial({"x_first", "x_last"});
}

void SplitHeadsApart::gradient(GradientOf<SplitHeadsApart> g) {
  input_gradient<JoinHeadsApart>(g, {"x_first", "x_last"},
                                 {{"q", g.arrived("q")}, {"k", g.arrived("k")}, {"v", g.arrived("v")}});
}

void JoinHeadsApart::rule(RuleOf<JoinHeadsApart> s) {
  set_two_together(s, kind, {s.at("q"), s.at("k"), s.at("v")}, s.at("x_first"), s.at("x_last"));
  s.pass_partial({"q", "k", "v"});
}

void JoinHeadsApart::gradient(GradientOf<JoinHeadsApart> g) {
  input_gradient<SplitHeadsApart>(g, {"q", "k", "v"},
                                  {{"x_first", g.arrived("x_first")}, {"x_last", g.arrived("x_last")}});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> heads_ops() {
  using namespace ops;
  return {op_def<SplitHeads>(), op_def<JoinHeads>(), op_def<SplitHeadsApart>(), op_def<JoinHeadsApart>()};
}

}  // namespace prun
