#include "prun/ops/biased_experts.hpp"

#include <vector>

#include "base/require.hpp"

namespace prun::ops {
namespace {

// Checks choices and their weights, for values of this type.
template <class Op>
void check_choices(const ShapeOf<Op>& s, DType type) {
  const OperandShape &i = s["index"], &w = s["weight"];
  bool fits = i.rank == 3 && w.rank == 3 && i.dtype == DType::i32 && w.dtype == OpShape::statistics(type);
  for (int d = 0; fits && d < 3; ++d) fits = i.dims[d] == w.dims[d];
  require(fits, Op::kind, " takes i32 choices [batch, seq, choice] and weights alike, in fp32 or fp64");
}

template <class Op>
void check_biased_experts(const RuleOf<Op>& s) {
  const OperandShape &x = s["x"], &up = s["up"], &down = s["down"], &bias = s["up_bias"];
  check_choices(s, x.dtype);
  require(x.rank == 3 && up.rank == 4 && down.rank == 3 && bias.rank == 3 && up.dims[1].extent == 2 &&
              up.dims[0] == down.dims[0] && up.dims[2] == down.dims[2] && up.dims[3] == x.dims[2] &&
              down.dims[1] == x.dims[2] && bias.dims[0] == up.dims[0] && bias.dims[1] == up.dims[1] &&
              bias.dims[2] == up.dims[2],
          Op::kind,
          " takes x [batch, seq, hidden], up [experts, 2, ffn, hidden], down [experts, hidden, ffn] and "
          "up_bias [experts, 2, ffn]");
  require(s.real("limit") >= 0, Op::kind, " takes a limit from 0 on");
  s.whole(x.dims[2].name);
  s.whole(s["index"].dims[2].name);
  s.whole(up.dims[1].name);
  s.prefer(up.dims[0].name);
}

// Marks what a position's result is summed over.
template <class Op>
void sum_biased_results(const RuleOf<Op>& s) {
  s.sum(s["up"].dims[0].name);
  s.sum(s["up"].dims[2].name);
}

// Counts `products` with up and down each, for the choices that are expected here.
template <class Op>
double flops_of_biased(const ShapeOf<Op>& s, double up_products, double down_products) {
  const OperandShape &index = s["index"], &up = s["up"], &down = s["down"];
  const std::int64_t all = s.integer("experts") > 0 ? s.integer("experts") : up.dims[0].extent;
  const double rows = static_cast<double>(index.elements()) / static_cast<double>(all);
  return 2 * rows *
         (up_products * static_cast<double>(up.elements()) +
          down_products * static_cast<double>(down.elements()));
}

// Checks index, weight and bias [experts, hidden].
template <class Op>
void check_biases(const RuleOf<Op>& s) {
  const OperandShape& bias = s["bias"];
  check_choices(s, bias.dtype);
  require(bias.rank == 2, Op::kind, " takes a bias [experts, hidden]");
  s.whole(s["index"].dims[2].name);
  s.whole(bias.dims[1].name);
  s.prefer(bias.dims[0].name);
}

}  // namespace

void BiasedExperts::rule(RuleOf<BiasedExperts> s) {
  s.like("y", "x");
  sum_biased_results(s);
  check_biased_experts(s);
}

void BiasedExperts::gradient(GradientOf<BiasedExperts> g) {
  const AttrValue all{"experts", g.attr("experts")}, limit{"limit", g.attr("limit")},
      alpha{"alpha", g.attr("alpha")};
  const Id x = g["x"], index = g["index"], weight = g["weight"], up = g["up"], down = g["down"],
           bias = g["up_bias"], dy = g.arrived("y");
  g.inputs({"x", "weight"}, "biased_experts_grad", {x, index, weight, up, down, bias, dy},
           {all, limit, alpha});
  g.weight({"up", "down", "up_bias"}, "biased_experts_weight_grad", {x, index, weight, up, down, bias, dy},
           {all, limit, alpha});
}

void BiasedExperts::cost(ShapeOf<BiasedExperts> s, OpCost& c) { c.flops = flops_of_biased(s, 1, 1); }

void BiasedExpertsGrad::rule(RuleOf<BiasedExpertsGrad> s) {
  s.like("dx", "x");
  s.like("dweight", "weight");
  sum_biased_results(s);
  check_biased_experts(s);
}

void BiasedExpertsGrad::cost(ShapeOf<BiasedExpertsGrad> s, OpCost& c) {
  c.flops = flops_of_biased(s, 2, 1);
  c.repeated = flops_of_biased(s, 1, 0);
}

void BiasedExpertsWeightGrad::rule(RuleOf<BiasedExpertsWeightGrad> s) {
  s.sum("x", 0, 2);
  check_biased_experts(s);
}

void BiasedExpertsWeightGrad::cost(ShapeOf<BiasedExpertsWeightGrad> s, OpCost& c) {
  c.flops = flops_of_biased(s, 2, 2);
  c.repeated = flops_of_biased(s, 1, 1);
}

void ExpertBiases::rule(RuleOf<ExpertBiases> s) {
  const OperandShape &index = s["index"], &bias = s["bias"];
  const Dim dims[] = {index.dims[0], index.dims[1], bias.dims[1]};
  s.output("y", bias.dtype, dims, 3);
  s.sum(bias.dims[0].name);
  check_biases(s);
}

void ExpertBiases::gradient(GradientOf<ExpertBiases> g) {
  const Id index = g["index"], weight = g["weight"], bias = g["bias"], dy = g.arrived("y");
  g.input("weight", "expert_biases_grad", {index, weight, bias, dy});
  g.weight({"bias"}, "expert_biases_weight_grad", {index, weight, bias, dy});
}

void ExpertBiasesGrad::rule(RuleOf<ExpertBiasesGrad> s) {
  s.like("dweight", "weight");
  s.sum(s["bias"].dims[0].name);
  check_biases(s);
}

void ExpertBiasesWeightGrad::rule(RuleOf<ExpertBiasesWeightGrad> s) {
  s.sum("index", 0, 2);
  check_biases(s);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> biased_experts_ops() {
  using namespace ops;
  return {op_def<BiasedExperts>(), op_def<BiasedExpertsGrad>(), op_def<BiasedExpertsWeightGrad>(),
          op_def<ExpertBiases>(),  op_def<ExpertBiasesGrad>(),  op_def<ExpertBiasesWeightGrad>()};
}

}  // namespace prun
