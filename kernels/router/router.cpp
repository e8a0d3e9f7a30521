#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/bias.hpp"
#include "prun/ops/router.hpp"

namespace prun::ops {
namespace {

std::int64_t leading(const OperandShape& value) {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < value.rank; ++i) n *= value.dims[i].extent;
  return n;
}

void check_leading(const OperandShape& a, const OperandShape& b, const char* op) {
  bool same = a.rank == b.rank && a.rank >= 2;
  for (int i = 0; same && i + 1 < a.rank; ++i) same = a.dims[i] == b.dims[i];
  require(same, op, ": the two values have other leading dimensions");
}

}  // namespace

void Router::rule(RuleOf<Router> s) {
  const OperandShape &x = s["x"], &w = s["weight"];
  require(x.rank >= 2 && w.rank == 2 && x.dims[x.rank - 1] == w.dims[1] && x.dtype == w.dtype,
          "router takes x [..., hidden] and a weight [routes, hidden] of one type");
  Dim dims[max_dims];
  for (int i = 0; i + 1 < x.rank; ++i) dims[i] = x.dims[i];
  dims[x.rank - 1] = w.dims[0];
  s.output("logits", OpShape::statistics(x.dtype), dims, x.rank);
  const OperandShape& bias = s["bias"];
  require(!bias.present || (bias.rank == 1 && bias.dims[0] == w.dims[0] && bias.dtype == x.dtype),
          "router takes a bias [routes] of the type of x");
  s.sum(w.dims[1].name);
  s.pass_partial({"x", "bias"});
}

void Router::gradient(GradientOf<Router> g) {
  input_gradient<RouterInputGrad>(g, {"x"}, {{"dlogits", g.arrived("logits")}});
  weight_gradient<RouterWeightGrad>(g, {"weight"}, {{"dlogits", g.arrived("logits")}});
  weight_gradient<BiasGrad>(g, {"bias"}, {{"dy", g.arrived("logits")}});
}

void Router::cost(ShapeOf<Router> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(leading(s["x"])) * static_cast<double>(s["weight"].elements());
}

void RouterInputGrad::rule(RuleOf<RouterInputGrad> s) {
  const OperandShape &d = s["dlogits"], &w = s["weight"];
  require(d.rank >= 2 && w.rank == 2 && d.dims[d.rank - 1] == w.dims[0],
          "router_input_grad takes dlogits [..., routes] and a weight [routes, hidden]");
  Dim dims[max_dims];
  for (int i = 0; i + 1 < d.rank; ++i) dims[i] = d.dims[i];
  dims[d.rank - 1] = w.dims[1];
  s.output("dx", w.dtype, dims, d.rank);
  s.sum(w.dims[0].name);
  s.pass_partial({"dlogits"});
}

void RouterInputGrad::cost(ShapeOf<RouterInputGrad> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(leading(s["dlogits"])) * static_cast<double>(s["weight"].elements());
}

void RouterWeightGrad::rule(RuleOf<RouterWeightGrad> s) {
  check_leading(s["x"], s["dlogits"], kind);
  s.sum("x", 0, s["x"].rank - 1);
}

void RouterWeightGrad::cost(ShapeOf<RouterWeightGrad> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(leading(s["x"])) * static_cast<double>(s["dweight"].elements());
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> router_ops() {
  using namespace ops;
  return {op_def<Router>(), op_def<RouterInputGrad>(), op_def<RouterWeightGrad>()};
}

}  // namespace prun
