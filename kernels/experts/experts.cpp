#include "prun/ops/experts.hpp"

#include <algorithm>
#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"

namespace prun::ops {
namespace {

// Says whether x is rows that were sent.
template <class Op>
bool are_rows(const ShapeOf<Op>& s) {
  return s["x"].rank == 4;
}

// Checks choices and their weights, of values of this type, whose first dimensions are `positions`.
template <class Op>
void check_choices(const ShapeOf<Op>& s, int rank, DType type, const Dim* positions) {
  const OperandShape &index = s["index"], &weight = s["weight"];
  bool fits = index.rank == rank && weight.rank == rank && index.dtype == DType::i32 &&
              weight.dtype == OpShape::statistics(type);
  for (int i = 0; fits && i < rank; ++i)
    fits = index.dims[i] == weight.dims[i] && (i + 1 == rank || index.dims[i] == positions[i]);
  require(fits, Op::kind, " takes i32 choices [batch, seq, choice] and weights alike, in fp32 or fp64");
}

template <class Op>
void check_experts(const ShapeOf<Op>& s) {
  const char* const op = Op::kind;
  const OperandShape &x = s["x"], &up = s["up"], &down = s["down"];
  const int last = x.rank - 1;
  require((x.rank == 3 || (x.rank == 4 && x.dims[0].name == up.dims[0].name)) && up.rank == 4 &&
              down.rank == 3 && up.dims[1].extent == 2 && up.dims[0] == down.dims[0] &&
              up.dims[2] == down.dims[2] && up.dims[3] == x.dims[last] && down.dims[1] == x.dims[last],
          op, " takes x [batch, seq, hidden], up [experts, 2, ffn, hidden] and down [experts, hidden, ffn]");
  check_choices(s, x.rank, x.dtype, x.dims);
}

// Marks what all of them have in common: an expert goes before the batch, since its weights stay where they
// are.
template <class Op>
void mark_experts(const RuleOf<Op>& s) {
  const int last = s["x"].rank - 1;
  s.whole(s["x"].dims[last].name);
  s.whole(s["index"].dims[last].name);
  s.whole(s["up"].dims[1].name);
  s.prefer(s["up"].dims[0].name);
}

// Marks what a position's result is summed over. Rows lie where their experts do.
template <class Op>
void sum_results(const RuleOf<Op>& s) {
  if (!are_rows(s)) s.sum(s["up"].dims[0].name);
  s.sum(s["up"].dims[2].name);
}

// Gives what went into the activations its shape: there is room for the rows of all choices, two values for
// each of an expert's.
template <class Op>
void set_kept(const RuleOf<Op>& s) {
  const Dim* const chosen = s["index"].dims;
  const Dim dims[] = {chosen[0], chosen[1], Dim{"kept", 2 * chosen[2].extent}, s["up"].dims[2]};
  s.output("kept", s["x"].dtype, dims, 4);
  s.whole(dims[2].name);
  s.keep_own("kept");
}

template <class Op>
void check_kept(const RuleOf<Op>& s) {
  const OperandShape given = s["kept"];
  if (!given.present) return;
  require(!are_rows(s), Op::kind, " keeps nothing of rows that were sent");
  set_kept(s);
  const OperandShape& right = s["kept"];
  require(given.rank == 4 && given.dtype == right.dtype && std::equal(given.dims, given.dims + 4, right.dims),
          Op::kind, " takes what experts kept [batch, seq, 2 * choice, ffn], of the type of x");
}

// Returns the choices that are expected of an expert.
template <class Op>
double expected_choices(const ShapeOf<Op>& s) {
  const std::int64_t all = s.integer("experts") > 0 ? s.integer("experts") : s["up"].dims[0].extent;
  return static_cast<double>(s["index"].elements()) / static_cast<double>(all);
}

// Does so where x may be rows that were sent: they have some of their positions' choices, and there are as
// many in all as the positions make.
template <class Op>
double choices_of_expert(const ShapeOf<Op>& s) {
  const double here = expected_choices(s);
  if (!are_rows(s)) return here;
  const OperandShape& index = s["index"];
  const std::int64_t rows = index.dims[2].extent,
                     positions = s.integer("positions") > 0 ? s.integer("positions") : rows;
  return here / static_cast<double>(index.dims[0].extent) * static_cast<double>(positions) /
         static_cast<double>(rows);
}

// Counts `products` with up and down each, for so many choices of an expert.
template <class Op>
double experts_flops(const ShapeOf<Op>& s, double choices, double up_products, double down_products) {
  return 2 * choices *
         (up_products * static_cast<double>(s["up"].elements()) +
          down_products * static_cast<double>(s["down"].elements()));
}

// Sets the rule of the gradients of x and weight.
template <class Op>
void set_input_gradients(const RuleOf<Op>& s) {
  s.like("dx", "x");
  s.like("dweight", "weight");
  sum_results(s);
}

// Marks what the gradients of up and down are summed over.
template <class Op>
void sum_positions(const RuleOf<Op>& s) {
  const int batch = are_rows(s) ? 1 : 0;
  s.sum("x", batch, batch + 2);
}

// Sets the cost of a gradient that multiplies with up and down so often, with down `repeated` times for what
// another op has done as well. Without what was kept, up comes once more, and what is computed again is no
// model FLOPs.
template <class Op>
void cost_of_gradient(const ShapeOf<Op>& s, OpCost& c, double choices, bool kept, double up, double down,
                      double repeated) {
  const double again = kept ? 0 : 1;
  c.flops = experts_flops(s, choices, up + again, down);
  c.repeated = experts_flops(s, choices, again, repeated);
}

template <class Op>
void cost_of_gradient(const ShapeOf<Op>& s, OpCost& c, double up, double down, double repeated) {
  cost_of_gradient(s, c, choices_of_expert(s), s.has("kept"), up, down, repeated);
}

template <class Op>
void check_biased_experts(const RuleOf<Op>& s) {
  check_experts(s);
  const OperandShape &up = s["up"], &bias = s["up_bias"];
  require(!are_rows(s) && bias.rank == 3 && std::equal(bias.dims, bias.dims + 3, up.dims), Op::kind,
          " takes x [batch, seq, hidden] and up_bias [experts, 2, ffn]");
  require(s.real("limit") >= 0, Op::kind, " takes a limit from 0 on");
}

// Checks index, weight and bias [experts, hidden].
template <class Op>
void check_biases(const RuleOf<Op>& s) {
  const OperandShape &index = s["index"], &bias = s["bias"];
  check_choices(s, 3, bias.dtype, index.dims);
  require(bias.rank == 2, Op::kind, " takes a bias [experts, hidden]");
  s.whole(index.dims[2].name);
  s.whole(bias.dims[1].name);
  s.prefer(bias.dims[0].name);
}

}  // namespace

void Experts::rule(RuleOf<Experts> s) {
  check_experts(s);
  s.like("y", "x");
  if (are_rows(s))
    check_kept(s);
  else
    set_kept(s);
  sum_results(s);
  mark_experts(s);
}

void Experts::gradient(GradientOf<Experts> g) {
  const AttrValue all{"experts", g.attr("experts")}, positions{"positions", g.attr("positions")};
  const Id dy = g.arrived("y"), kept = g.keep("kept");
  input_gradient<ExpertsGrad>(g, {"x", "weight"}, {{"dy", dy}, {"kept", kept}}, {all, positions});
  weight_gradient<ExpertsWeightGrad>(g, {"up", "down"}, {{"dy", dy}, {"kept", kept}}, {all, positions});
}

void Experts::cost(ShapeOf<Experts> s, OpCost& c) { c.flops = experts_flops(s, choices_of_expert(s), 1, 1); }

void ExpertsGrad::rule(RuleOf<ExpertsGrad> s) {
  check_experts(s);
  check_kept(s);
  set_input_gradients(s);
  mark_experts(s);
}

void ExpertsGrad::cost(ShapeOf<ExpertsGrad> s, OpCost& c) { cost_of_gradient(s, c, 1, 1, 0); }

void ExpertsWeightGrad::rule(RuleOf<ExpertsWeightGrad> s) {
  check_experts(s);
  check_kept(s);
  sum_positions(s);
  mark_experts(s);
}

// This needs the activations' gradients as well.
void ExpertsWeightGrad::cost(ShapeOf<ExpertsWeightGrad> s, OpCost& c) { cost_of_gradient(s, c, 1, 2, 1); }

void ExpertsGrads::rule(RuleOf<ExpertsGrads> s) {
  check_experts(s);
  check_kept(s);
  set_input_gradients(s);
  sum_positions(s);
  mark_experts(s);
}

void ExpertsGrads::cost(ShapeOf<ExpertsGrads> s, OpCost& c) { cost_of_gradient(s, c, 2, 2, 0); }

void BiasedExperts::rule(RuleOf<BiasedExperts> s) {
  check_biased_experts(s);
  s.like("y", "x");
  sum_results(s);
  mark_experts(s);
}

void BiasedExperts::gradient(GradientOf<BiasedExperts> g) {
  const AttrValue all{"experts", g.attr("experts")}, limit{"limit", g.attr("limit")},
      alpha{"alpha", g.attr("alpha")};
  const Id dy = g.arrived("y");
  input_gradient<BiasedExpertsGrad>(g, {"x", "weight"}, {{"dy", dy}}, {all, limit, alpha});
  weight_gradient<BiasedExpertsWeightGrad>(g, {"up", "down", "up_bias"}, {{"dy", dy}}, {all, limit, alpha});
}

void BiasedExperts::cost(ShapeOf<BiasedExperts> s, OpCost& c) {
  c.flops = experts_flops(s, expected_choices(s), 1, 1);
}

void BiasedExpertsGrad::rule(RuleOf<BiasedExpertsGrad> s) {
  check_biased_experts(s);
  set_input_gradients(s);
  mark_experts(s);
}

void BiasedExpertsGrad::cost(ShapeOf<BiasedExpertsGrad> s, OpCost& c) {
  cost_of_gradient(s, c, expected_choices(s), false, 1, 1, 0);
}

void BiasedExpertsWeightGrad::rule(RuleOf<BiasedExpertsWeightGrad> s) {
  check_biased_experts(s);
  sum_positions(s);
  mark_experts(s);
}

void BiasedExpertsWeightGrad::cost(ShapeOf<BiasedExpertsWeightGrad> s, OpCost& c) {
  cost_of_gradient(s, c, expected_choices(s), false, 1, 2, 1);
}

void ExpertBiases::rule(RuleOf<ExpertBiases> s) {
  const OperandShape &index = s["index"], &bias = s["bias"];
  const Dim dims[] = {index.dims[0], index.dims[1], bias.dims[1]};
  s.output("y", bias.dtype, dims, 3);
  s.sum(bias.dims[0].name);
  check_biases(s);
}

void ExpertBiases::gradient(GradientOf<ExpertBiases> g) {
  input_gradient<ExpertBiasesGrad>(g, {"weight"}, {{"dy", g.arrived("y")}});
  weight_gradient<ExpertBiasesWeightGrad>(g, {"bias"}, {{"dy", g.arrived("y")}});
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

std::vector<OpDef> experts_ops() {
  using namespace ops;
  return {op_def<Experts>(),
          op_def<ExpertsGrad>(),
          op_def<ExpertsWeightGrad>(),
          op_def<ExpertsGrads>(),
          op_def<BiasedExperts>(),
          op_def<BiasedExpertsGrad>(),
          op_def<BiasedExpertsWeightGrad>(),
          op_def<ExpertBiases>(),
          op_def<ExpertBiasesGrad>(),
          op_def<ExpertBiasesWeightGrad>()};
}

}  // namespace prun
