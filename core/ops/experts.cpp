// experts: each position's x goes through the MLPs that it has chosen, and their results come together with
// its weights:
//   y = sum over choices c of weight[c] * down[e] * swiglu(up[e] * x), e = index[c]
// No choice is dropped: there are as many rows as choices, whatever the router says. Rows are put in the
// order of their experts within the op, and each position adds its own in the order of its choices, so that
// no sum depends on when it is computed. An expert that this rank does not hold is another's: what its ranks
// have are summands. Backward keeps x, the choices and, in the device's own order of rows, `kept`: what went
// into the activations; where that is left out, it computes it again. Its halves are apart, so that a
// schedule may move the weights' gradients; experts_grads is for devices that do both in one.
//
// x may also be rows that ranks have sent each other (core/ops/rows.cpp): [experts, batch, rows, hidden], its
// choices and weights alike. They lie where their experts do, so that nothing is a summand of other ranks,
// and nothing is kept of them.
#include <algorithm>
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

// `experts` counts those of all ranks: a rank's part of the work follows from it. Of rows, some are empty:
// those of a sequence come from so many `positions`.
constexpr AttrDef experts_attr[] = {int_attr("experts", 0), later(int_attr("positions", 0))};

// Says whether x is rows that were sent.
bool are_rows(const OpShape& s) { return s.operand[0].rank == 4; }

void check_experts(const OpShape& s, const char* op) {
  const OperandShape &x = s.operand[0], &index = s.operand[1], &weight = s.operand[2], &up = s.operand[3],
                     &down = s.operand[4];
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
void mark(OpShape& s) {
  const int last = s.operand[0].rank - 1;
  s.whole(s.operand[0].dims[last].name);
  s.whole(s.operand[1].dims[last].name);
  s.whole(s.operand[3].dims[1].name);
  s.prefer(s.operand[3].dims[0].name);
}

// Marks what a position's result is summed over. Rows lie where their experts do.
void sum_results(OpShape& s) {
  if (!are_rows(s)) s.sum(s.operand[3].dims[0].name);
  s.sum(s.operand[3].dims[2].name);
}

// Gives what went into the activations its shape: there is room for the rows of all choices, two values for
// each of an expert's.
void set_kept(OpShape& s, int i) {
  const Dim* const chosen = s.operand[1].dims;
  const Dim dims[] = {chosen[0], chosen[1], Dim{"kept", 2 * chosen[2].extent}, s.operand[3].dims[2]};
  s.output(i, s.operand[0].dtype, dims, 4);
  s.whole(dims[2].name);
  s.keep_own(i);
}

void check_kept(OpShape& s, int i, const char* op) {
  const OperandShape given = s.operand[i];
  if (!given.present) return;
  require(!are_rows(s), op, " keeps nothing of rows that were sent");
  set_kept(s, i);
  const OperandShape& right = s.operand[i];
  require(given.rank == 4 && given.dtype == right.dtype && std::equal(given.dims, given.dims + 4, right.dims),
          op, " takes what experts kept [batch, seq, 2 * choice, ffn], of the type of x");
}

// Returns the choices that are expected of an expert. Rows that were sent have some of their positions'
// choices; there are as many in all as the positions make.
double choices_of_expert(const OpShape& s) {
  const OperandShape& index = s.operand[1];
  const std::int64_t all = s.attrs[0].i > 0 ? s.attrs[0].i : s.operand[3].dims[0].extent;
  const double here = static_cast<double>(index.elements()) / static_cast<double>(all);
  if (!are_rows(s)) return here;
  const std::int64_t rows = index.dims[2].extent, positions = s.attrs[1].i > 0 ? s.attrs[1].i : rows;
  return here / static_cast<double>(index.dims[0].extent) * static_cast<double>(positions) /
         static_cast<double>(rows);
}

// Counts `products` with up and down each, for the choices that are expected here.
double flops(const OpShape& s, double up_products, double down_products) {
  const OperandShape &up = s.operand[3], &down = s.operand[4];
  const double rows = choices_of_expert(s);
  return 2 * rows *
         (up_products * static_cast<double>(up.elements()) +
          down_products * static_cast<double>(down.elements()));
}

struct Experts {
  static constexpr const char* kind = "experts";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the MLPs that each position has chosen, weighted and added up";
  static constexpr OperandDef operands[] = {
      {"x"}, {"index"}, {"weight"}, {"up"}, {"down"}, {"y", Access::write}, {"kept", Access::write, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attr;
  static void rule(OpShape& s) {
    check_experts(s, kind);
    s.like(5, 0);
    if (are_rows(s))
      check_kept(s, 6, kind);
    else
      set_kept(s, 6);
    sum_results(s);
    mark(s);
  }
  static void gradient(const Gradient& g) {
    const AttrValue all{"experts", g.attr("experts")}, positions{"positions", g.attr("positions")};
    const Id x = g.operand(0), index = g.operand(1), weight = g.operand(2), up = g.operand(3),
             down = g.operand(4), dy = g.arrived(5), kept = g.keep(6);
    g.inputs({0, 2}, "experts_grad", {x, index, weight, up, down, dy, kept}, {all, positions});
    g.weight({3, 4}, "experts_weight_grad", {x, index, weight, up, down, dy, kept}, {all, positions});
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = flops(s, 1, 1); }
};

// Sets the rule of gradients: operands 7 and 8 are those of x and weight if `inputs`, those of up and down
// come last if `weights`.
void rule_of_gradients(OpShape& s, const char* op, bool inputs, bool weights) {
  check_experts(s, op);
  check_kept(s, 6, op);
  if (inputs) {
    s.like(7, 0);
    s.like(8, 2);
    sum_results(s);
  }
  const int batch = are_rows(s) ? 1 : 0;
  if (weights) s.sum(0, batch, batch + 2);
  mark(s);
}

// Sets the cost of a gradient that multiplies with up and down so often, with down `repeated` times for what
// another op has done as well. Without what was kept, up comes once more, and what is computed again is no
// model FLOPs.
void cost_of(const OpShape& s, OpCost& c, double up, double down, double repeated) {
  const double again = s.operand[6].present ? 0 : 1;
  c.flops = flops(s, up + again, down);
  c.repeated = flops(s, again, repeated);
}

struct ExpertsGrad {
  static constexpr const char* kind = "experts_grad";
  static constexpr const char* help = "dx and dweight of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dx", Access::write},
                                            {"dweight", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = experts_attr;
  static void rule(OpShape& s) { rule_of_gradients(s, kind, true, false); }
  static void cost(const OpShape& s, OpCost& c) { cost_of(s, c, 1, 1, 0); }
};

struct ExpertsWeightGrad {
  static constexpr const char* kind = "experts_weight_grad";
  static constexpr const char* help = "dup and ddown of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dup", Access::update, true},
                                            {"ddown", Access::update, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { rule_of_gradients(s, kind, false, true); }
  // This needs the activations' gradients as well.
  static void cost(const OpShape& s, OpCost& c) { cost_of(s, c, 1, 2, 1); }
};

struct ExpertsGrads {
  static constexpr const char* kind = "experts_grads";
  static constexpr const char* help = "dx, dweight, dup and ddown of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dx", Access::write},
                                            {"dweight", Access::write},
                                            {"dup", Access::update, true},
                                            {"ddown", Access::update, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { rule_of_gradients(s, kind, true, true); }
  static void cost(const OpShape& s, OpCost& c) { cost_of(s, c, 2, 2, 0); }
};

}  // namespace

std::vector<OpDef> experts_ops() {
  return {op_def<Experts>(), op_def<ExpertsGrad>(), op_def<ExpertsWeightGrad>(), op_def<ExpertsGrads>()};
}

}  // namespace prun
