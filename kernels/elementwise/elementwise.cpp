#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/elementwise.hpp"

namespace prun::ops {
namespace {

bool is_number(const OperandShape& x) { return x.rank == 0 && x.dtype == DType::f64; }

}  // namespace

void Add::rule(RuleOf<Add> s) {
  const OperandShape &a = s["a"], &b = s["b"];
  bool same = a.rank == b.rank && a.dtype == b.dtype;
  for (int i = 0; same && i < a.rank; ++i) same = a.dims[i] == b.dims[i];
  require(same, "add takes two values of one type and shape");
  s.like("y", "a");
  s.pass_partial({"a", "b"});
}

void Add::gradient(GradientOf<Add> g) {
  g.pass("a", g.arrived("y"));
  g.pass("b", g.arrived("y"));
}

void Scale::rule(RuleOf<Scale> s) {
  s.like("y", "x");
  s.pass_partial({"x"});
}

void Scale::gradient(GradientOf<Scale> g) {
  input_gradient<Scale>(g, {"x"}, {{"x", g.arrived("y")}}, {{"factor", g.attr("factor")}});
}

void Cast::rule(RuleOf<Cast> s) {
  require(s.integer("to") >= 0 && s.integer("to") <= 7 && is_float(static_cast<DType>(s.integer("to"))),
          "cast: `to` is 0 (fp64), 1 (fp32), 2 (bf16) or 7 (fp16)");
  require(static_cast<std::int64_t>(s["x"].dtype) == s.integer("from"),
          "cast: `from` says another type than the value has");
  s.like("y", "x");
  s["y"].dtype = static_cast<DType>(s.integer("to"));
  s.pass_partial({"x"});
}

void Cast::gradient(GradientOf<Cast> g) {
  input_gradient<Cast>(g, {"x"}, {{"x", g.arrived("y")}}, {{"to", g.attr("from")}, {"from", g.attr("to")}});
}

void Accumulate::rule(RuleOf<Accumulate> s) { s.pass_partial({"x"}); }

void Reciprocal::rule(RuleOf<Reciprocal> s) {
  require(is_number(s["x"]), "reciprocal takes one fp64 number");
  s.scalar("y", DType::f64);
}

void Multiply::rule(RuleOf<Multiply> s) {
  require(is_number(s["a"]) && is_number(s["b"]), "multiply takes fp64 numbers");
  s.scalar("y", DType::f64);
}

void Choose::rule(RuleOf<Choose> s) {
  require(is_number(s["which"]) && is_number(s["a"]) && is_number(s["b"]), "choose takes fp64 numbers");
  s.scalar("y", DType::f64);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> elementwise_ops() {
  using namespace ops;
  return {op_def<Add>(),        op_def<Scale>(),    op_def<Cast>(),  op_def<Accumulate>(),
          op_def<Reciprocal>(), op_def<Multiply>(), op_def<Choose>()};
}

}  // namespace prun
