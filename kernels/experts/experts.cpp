#include "prun/ops/experts.hpp"

#include <algorithm>
#include <vector>

#include "base/require.hpp"

namespace prun::ops {
namespace {

// Says whether x is rows that were sent.
template <class Op>
bool are_rows(const ShapeOf<Op>& s) {
  return s["x"].rank == 4;
}

template <class Op>
void check_experts(const ShapeOf<Op>& s) {
  const char* const op = Op::kind;
  const OperandShape &x = s["x"], &index = s["index"], &weight = s["weight"], &up = s["up"],
                     &down = s["down"];
  const int last = x.rank - 1;
  require((x.rank == 3 || (x.rank == 4 && x.dims[0].name == up.dims[0].name)) && up.rank == 4 &&
              down.rank == 3 && up.dims[1].extent == 2 && up.dims[0] == down.dims[0] &&
              up.dims[2] == down.dims[2] && up.dims[3] == x.dims[last] && down.dims[1] == x.dims[last],
          op, " takes x [batch, seq, hidden], up [experts, 2, ffn, hidden] and down [experts, hidden, ffn]");
  bool chosen = index.rank == x.rank && weight.rank == x.rank && index.dtype == DType::i32 &&
                weight.dtype == OpShape::statistics(x.dtype);
  for (int i = 0; chosen && i <= last; ++i)
    chosen = index.dims[i] == weight.dims[i] && (i == last || index.dims[i] == x.dims[i]);
  require(chosen, op, " takes i32 choices [batch, seq, choice] and weights alike, in fp32 or fp64");
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

// Returns the choices that are expected of an expert. Rows that were sent have some of their positions'
// choices; there are as many in all as the positions make.
template <class Op>
double choices_of_expert(const ShapeOf<Op>& s) {
  const OperandShape& index = s["index"];
  const std::int64_t all = s.integer("experts") > 0 ? s.integer("experts") : s["up"].dims[0].extent;
  const double here = static_cast<double>(index.elements()) / static_cast<double>(all);
  if (!are_rows(s)) return here;
  const std::int64_t rows = index.dims[2].extent,
                     positions = s.integer("positions") > 0 ? s.integer("positions") : rows;
  return here / static_cast<double>(index.dims[0].extent) * static_cast<double>(positions) /
         static_cast<double>(rows);
}

// Counts `products` with up and down each, for the choices that are expected here.
template <class Op>
double experts_flops(const ShapeOf<Op>& s, double up_products, double down_products) {
  const OperandShape &up = s["up"], &down = s["down"];
  const double rows = choices_of_expert(s);
  return 2 * rows *
         (up_products * static_cast<double>(up.elements()) +
          down_products * static_cast<double>(down.elements()));
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
void cost_of_gradient(const ShapeOf<Op>& s, OpCost& c, double up, double down, double repeated) {
  const double again = s.has("kept") ? 0 : 1;
  c.flops = experts_flops(s, up + again, down);
  c.repeated = experts_flops(s, again, repeated);
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
  const Id x = g["x"], index = g["index"], weight = g["weight"], up = g["up"], down = g["down"],
           dy = g.arrived("y"), kept = g.keep("kept");
  g.inputs({"x", "weight"}, "experts_grad", {x, index, weight, up, down, dy, kept}, {all, positions});
  g.weight({"up", "down"}, "experts_weight_grad", {x, index, weight, up, down, dy, kept}, {all, positions});
}

void Experts::cost(ShapeOf<Experts> s, OpCost& c) { c.flops = experts_flops(s, 1, 1); }

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

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> experts_ops() {
  using namespace ops;
  return {op_def<Experts>(), op_def<ExpertsGrad>(), op_def<ExpertsWeightGrad>(), op_def<ExpertsGrads>()};
}

}  // namespace prun
