#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/activation.hpp"

namespace prun::ops {
namespace {

// Sets the shape: x[..., gate, width] has two slots along `gate`: the input of the gate's function, and what
// it multiplies.
template <class Op>
void set_gated(RuleOf<Op> s) {
  const OperandShape& x = s["x"];
  require(x.rank >= 3 && x.dims[x.rank - 2].extent == 2, Op::kind, " takes [..., 2, width]");
  Dim dims[max_dims];
  for (int i = 0; i < x.rank - 2; ++i) dims[i] = x.dims[i];
  dims[x.rank - 2] = x.dims[x.rank - 1];
  s.output("y", x.dtype, dims, x.rank - 1);
  s.whole("x", x.rank - 2, x.rank - 1);
}

template <class Op>
void set_gated_gradient(RuleOf<Op> s) {
  s.like("dx", "x");
  s.whole("x", s["x"].rank - 2, s["x"].rank - 1);
}

}  // namespace

void Gelu::rule(RuleOf<Gelu> s) { s.like("y", "x"); }

void Gelu::gradient(GradientOf<Gelu> g) { input_gradient<GeluGrad>(g, {"x"}, {{"dy", g.arrived("y")}}); }

void GeluGrad::rule(RuleOf<GeluGrad> s) { s.like("dx", "dy"); }

void GeluErf::rule(RuleOf<GeluErf> s) { s.like("y", "x"); }

void GeluErf::gradient(GradientOf<GeluErf> g) {
  input_gradient<GeluErfGrad>(g, {"x"}, {{"dy", g.arrived("y")}});
}

void GeluErfGrad::rule(RuleOf<GeluErfGrad> s) { s.like("dx", "dy"); }

void SwiGlu::rule(RuleOf<SwiGlu> s) { set_gated(s); }

void SwiGlu::gradient(GradientOf<SwiGlu> g) {
  input_gradient<SwiGluGrad>(g, {"x"}, {{"dy", g.arrived("y")}});
}

void SwiGluGrad::rule(RuleOf<SwiGluGrad> s) { set_gated_gradient(s); }

void GeGlu::rule(RuleOf<GeGlu> s) { set_gated(s); }

void GeGlu::gradient(GradientOf<GeGlu> g) { input_gradient<GeGluGrad>(g, {"x"}, {{"dy", g.arrived("y")}}); }

void GeGluGrad::rule(RuleOf<GeGluGrad> s) { set_gated_gradient(s); }

void GeGluErf::rule(RuleOf<GeGluErf> s) { set_gated(s); }

void GeGluErf::gradient(GradientOf<GeGluErf> g) {
  input_gradient<GeGluErfGrad>(g, {"x"}, {{"dy", g.arrived("y")}});
}

void GeGluErfGrad::rule(RuleOf<GeGluErfGrad> s) { set_gated_gradient(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> activation_ops() {
  using namespace ops;
  return {op_def<Gelu>(),     op_def<GeluGrad>(),    op_def<GeluErf>(), op_def<GeluErfGrad>(),
          op_def<SwiGlu>(),   op_def<SwiGluGrad>(),  op_def<GeGlu>(),   op_def<GeGluGrad>(),
          op_def<GeGluErf>(), op_def<GeGluErfGrad>()};
}

}  // namespace prun
