#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/route.hpp"

namespace prun::ops {
namespace {

void check_logits(const OperandShape& logits, const char* op) {
  require(logits.rank >= 2 && (logits.dtype == DType::f32 || logits.dtype == DType::f64), op,
          " takes logits [..., routes] in fp32 or fp64");
}

}  // namespace

void Route::rule(RuleOf<Route> s) {
  const OperandShape& logits = s["logits"];
  check_logits(logits, kind);
  const Dim& routes = logits.dims[logits.rank - 1];
  check_choices(s, routes.extent);
  if (s["bias"].present)
    require(s["bias"].rank == 1 && s["bias"].dims[0] == routes && s["bias"].dtype == logits.dtype,
            "route takes a bias [routes] of the logits' type");
  Dim dims[max_dims];
  for (int i = 0; i < logits.rank; ++i) dims[i] = logits.dims[i];
  dims[logits.rank - 1] = {"choice", s.integer("choices")};
  const DType type = logits.dtype;
  s.whole(routes.name);
  s.output("index", DType::i32, dims, logits.rank);
  s.output("weight", type, dims, s["index"].rank);
  s.whole("choice");
}

void Route::gradient(GradientOf<Route> g) {
  input_gradient<RouteGrad>(
      g, {"logits"}, {{"dweight", g.arrived("weight")}},
      {{"sigmoid", g.attr("sigmoid")}, {"normalise", g.attr("normalise")}, {"scale", g.attr("scale")}});
}

void Route::check_choices(ShapeOf<Route> s, std::int64_t routes) {
  const std::int64_t k = s.integer("choices"), groups = s.integer("groups"),
                     chosen = s.integer("chosen_groups"), best = s.integer("group_best");
  require(groups >= 1 && routes % groups == 0, "route: ", routes, " experts are not ", groups,
          " equal groups");
  require(chosen >= 1 && chosen <= groups, "route: ", chosen, " of ", groups, " groups cannot be chosen");
  require(k >= 1 && k <= chosen * (routes / groups), "route: ", k, " choices are more than the ",
          chosen * (routes / groups), " experts that they are made among");
  require(best == 1 || best == 2, "route: group_best is 1 or 2, not ", best);
  require(groups == 1 || best <= routes / groups, "route: groups of ", routes / groups, " experts have no ",
          best, " best");
}

void RouteGrad::rule(RuleOf<RouteGrad> s) {
  const OperandShape &logits = s["logits"], &index = s["index"];
  check_logits(logits, kind);
  require(index.dtype == DType::i32 && index.rank == logits.rank && s["dweight"].dtype == logits.dtype,
          "route_grad takes i32 choices and dweight of the logits' type");
  s.like("dlogits", "logits");
  s.whole(logits.dims[logits.rank - 1].name);
  s.whole(index.dims[index.rank - 1].name);
  s.pass_partial({"dweight"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> route_ops() {
  using namespace ops;
  return {op_def<Route>(), op_def<RouteGrad>()};
}

}  // namespace prun
