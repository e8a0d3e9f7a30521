#include <vector>

#include "base/require.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/bias.hpp"
#include "prun/ops/linear.hpp"

namespace prun::ops {
namespace {

// Says whether a product comes in blocks, for a weight [out.., in..] and a value with so many dimensions of
// rows. Each sequence comes in whole blocks, so that it does not matter how many are computed at once.
template <class Op>
bool product_in_blocks(const ShapeOf<Op>& part, const ShapeOf<Op>& whole, OperandOf<Op> value, int rows,
                       OperandOf<Op> weight) {
  const OperandShape &x = part[value], &w = part[weight];
  const OperandShape &all_x = whole[value], &all_w = whole[weight];
  const int out = w.rank - static_cast<int>(part.integer("in_dims"));
  return comes_in_blocks(x, all_x, 0, rows) && x.dims[rows - 1].extent % fp8_block == 0 &&
         comes_in_blocks(w, all_w, 0, out) && comes_in_blocks(w, all_w, out, w.rank);
}

template <class Op>
int dims_in(const ShapeOf<Op>& s) {
  return static_cast<int>(s.integer("in_dims"));
}

double matmul_flops(std::int64_t rows, const OperandShape& weight) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(weight.elements());
}

std::int64_t leading(const OperandShape& x, int count) {
  std::int64_t n = 1;
  for (int i = 0; i < count; ++i) n *= x.dims[i].extent;
  return n;
}

void check_same(const OperandShape& a, int from_a, const OperandShape& b, int from_b, int n,
                const char* what) {
  for (int i = 0; i < n; ++i)
    require(a.dims[from_a + i] == b.dims[from_b + i], what, ": dimension '", a.dims[from_a + i].name.view(),
            "' (", a.dims[from_a + i].extent, ") meets '", b.dims[from_b + i].name.view(), "' (",
            b.dims[from_b + i].extent, ")");
}

// Checks that `weight` is codes of one [out.., in..], whose dimensions two other values have from `lead` on,
// and marks those that the codes do not have.
template <class Op>
void take_weight_codes(RuleOf<Op> s, const OperandShape& out, const OperandShape& in, int lead,
                       bool by_rows) {
  const char* const op = Op::kind;
  const OperandShape& codes = s["weight"];
  OperandShape weight;
  weight.dtype = out.dtype;
  for (int d = lead; d < out.rank; ++d) weight.dims[weight.rank++] = out.dims[d];
  for (int d = lead; d < in.rank; ++d) weight.dims[weight.rank++] = in.dims[d];
  require(weight.rank <= max_dims, op, ": the weight has more than ", max_dims, " dimensions");
  const OperandShape right = fp8_squares_of(weight, in.rank - lead, by_rows);
  require(right.present && codes.dtype == right.dtype && codes.rank == right.rank, op,
          " takes codes of a weight's squares where fp8 is 2");
  check_same(codes, 0, right, 0, right.rank, op);
  for (int d = 0; d < weight.rank; ++d)
    if (!has_dim(codes, weight.dims[d].name)) s.whole(weight.dims[d].name);
}

template <class Op>
double input_grad_flops(const ShapeOf<Op>& s) {
  const int out = s["weight"].rank - dims_in(s);
  return matmul_flops(leading(s["dy"], s["dy"].rank - out), s["weight"]);
}

}  // namespace

void Linear::rule(RuleOf<Linear> s) {
  if (s.integer("fp8") == 2) return rule_of_codes(s);
  const OperandShape &x = s["x"], &w = s["weight"];
  const int in = static_cast<int>(s.integer("in_dims")), out = w.rank - in, lead = x.rank - in;
  require(in >= 1 && out >= 1 && lead >= 1, "linear: in_dims ", in, " does not fit the operands");
  require(lead + out <= max_dims, "linear: the result has more than ", max_dims, " dimensions");
  check_same(x, lead, w, out, in, "linear");
  if (s["bias"].present) check_same(w, 0, s["bias"], 0, out, "linear bias");
  Dim dims[max_dims];
  for (int i = 0; i < lead; ++i) dims[i] = x.dims[i];
  for (int i = 0; i < out; ++i) dims[lead + i] = w.dims[i];
  s.output("y", x.dtype, dims, lead + out);
  s.sum("weight", out, w.rank);
  // A partial x gives a partial y; a bias must then be a partial sum as well, so that it counts once.
  s.pass_partial({"x", "bias"});
}

// Takes codes of the weight by rows: y says which dimensions a weight's rows have.
void Linear::rule_of_codes(RuleOf<Linear> s) {
  const OperandShape &x = s["x"], &y = s["y"];
  const int lead = x.rank - dims_in(s);
  require(lead >= 1 && is_float(x.dtype) && y.present && y.dtype == x.dtype && y.rank > lead,
          "linear: in_dims ", dims_in(s), " does not fit the operands");
  check_same(x, 0, y, 0, lead, kind);
  take_weight_codes(s, y, x, lead, true);
  if (s["bias"].present) check_same(y, lead, s["bias"], 0, y.rank - lead, "linear bias");
  s.sum("x", lead, x.rank);
  s.pass_partial({"x", "bias"});
}

bool Linear::in_blocks(ShapeOf<Linear> part, ShapeOf<Linear> whole) {
  return product_in_blocks(part, whole, "x", part["x"].rank - dims_in(part), "weight");
}

void Linear::gradient(GradientOf<Linear> g) {
  const AttrValue in{"in_dims", g.attr("in_dims")}, fp8{"fp8", g.attr("fp8")};
  input_gradient<LinearInputGrad>(g, {"x"}, {{"dy", g.arrived("y")}}, {in, fp8});
  weight_gradient<LinearWeightGrad>(g, {"weight"}, {{"dy", g.arrived("y")}}, {in, fp8});
  weight_gradient<BiasGrad>(g, {"bias"}, {{"dy", g.arrived("y")}});
}

void Linear::cost(ShapeOf<Linear> s, OpCost& c) {
  const OperandShape &x = s["x"], &y = s["y"];
  const int lead = x.rank - dims_in(s);
  const std::int64_t width = x.elements() / leading(x, lead);
  if (s.integer("fp8") == 2)
    c.flops = 2.0 * static_cast<double>(y.elements()) * static_cast<double>(width);
  else
    c.flops = matmul_flops(leading(x, lead), s["weight"]);
}

void LinearInputGrad::rule(RuleOf<LinearInputGrad> s) {
  if (s.integer("fp8") == 2) return rule_of_codes(s);
  const OperandShape &dy = s["dy"], &w = s["weight"];
  const int in = static_cast<int>(s.integer("in_dims")), out = w.rank - in, lead = dy.rank - out;
  check_same(dy, lead, w, 0, out, "linear_input_grad");
  Dim dims[max_dims];
  for (int i = 0; i < lead; ++i) dims[i] = dy.dims[i];
  for (int i = 0; i < in; ++i) dims[lead + i] = w.dims[out + i];
  s.output("dx", dy.dtype, dims, lead + in);
  s.sum("weight", 0, out);
  s.pass_partial({"dy"});
}

// Takes codes of the weight by columns: dx says which dimensions its columns have.
void LinearInputGrad::rule_of_codes(RuleOf<LinearInputGrad> s) {
  const OperandShape &dy = s["dy"], &dx = s["dx"];
  const int lead = dx.rank - dims_in(s);
  require(lead >= 1 && is_float(dy.dtype) && dx.present && dx.dtype == dy.dtype && dy.rank > lead,
          "linear_input_grad: in_dims ", dims_in(s), " does not fit the operands");
  check_same(dy, 0, dx, 0, lead, kind);
  take_weight_codes(s, dy, dx, lead, false);
  s.sum("dy", lead, dy.rank);
  s.pass_partial({"dy"});
}

bool LinearInputGrad::in_blocks(ShapeOf<LinearInputGrad> part, ShapeOf<LinearInputGrad> whole) {
  return product_in_blocks(part, whole, "dx", part["dx"].rank - dims_in(part), "weight");
}

void LinearInputGrad::cost(ShapeOf<LinearInputGrad> s, OpCost& c) {
  const OperandShape &dy = s["dy"], &dx = s["dx"];
  const std::int64_t width = dy.elements() / leading(dy, dx.rank - dims_in(s));
  c.flops = s.integer("fp8") != 2 ? input_grad_flops(s)
                                  : 2.0 * static_cast<double>(dx.elements()) * static_cast<double>(width);
}

void LinearGeluGrad::rule(RuleOf<LinearGeluGrad> s) {
  const OperandShape &dy = s["dy"], &w = s["weight"], &x = s["x"];
  const int in = static_cast<int>(s.integer("in_dims")), out = w.rank - in, lead = dy.rank - out;
  check_same(dy, lead, w, 0, out, "linear_gelu_grad");
  require(x.rank == lead + in && x.dtype == dy.dtype, "linear_gelu_grad: x has another shape or type");
  check_same(x, 0, dy, 0, lead, "linear_gelu_grad");
  check_same(x, lead, w, out, in, "linear_gelu_grad");
  s.like("dx", "x");
  s.sum("weight", 0, out);
}

void LinearGeluGrad::cost(ShapeOf<LinearGeluGrad> s, OpCost& c) { c.flops = input_grad_flops(s); }

void LinearWeightGrad::rule(RuleOf<LinearWeightGrad> s) {
  if (s.integer("fp8") == 2) return rule_of_codes(s);
  const OperandShape& x = s["x"];
  const int lead = x.rank - static_cast<int>(s.integer("in_dims"));
  check_same(x, 0, s["dy"], 0, lead, "linear_weight_grad");
  s.sum("x", 0, lead);
}

// Sets x to the codes of its squares.
void LinearWeightGrad::rule_of_codes(RuleOf<LinearWeightGrad> s) {
  const OperandShape &codes = s["x"], &dy = s["dy"], &w = s["dweight"];
  const int in = static_cast<int>(s.integer("in_dims")), out = w.rank - in, lead = dy.rank - out;
  require(in >= 1 && lead >= 1, "linear_weight_grad: in_dims ", in, " does not fit the operands");
  OperandShape x = dy;
  x.rank = lead + in;
  for (int i = 0; i < in; ++i) x.dims[lead + i] = w.dims[out + i];
  const OperandShape right = fp8_squares_of(x, in);
  require(right.present && codes.dtype == right.dtype && codes.rank == right.rank,
          "linear_weight_grad takes codes of squares of a value where fp8 is 2");
  check_same(codes, 0, right, 0, right.rank, "linear_weight_grad");
  s.sum("x", 1, right.rank);
  s.whole("dweight", out + 1, w.rank);
}

bool LinearWeightGrad::in_blocks(ShapeOf<LinearWeightGrad> part, ShapeOf<LinearWeightGrad> whole) {
  return product_in_blocks(part, whole, "x", part["x"].rank - dims_in(part), "dweight");
}

void LinearWeightGrad::cost(ShapeOf<LinearWeightGrad> s, OpCost& c) {
  const int out = s["dweight"].rank - dims_in(s);
  c.flops = matmul_flops(leading(s["dy"], s["dy"].rank - out), s["dweight"]);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> linear_ops() {
  using namespace ops;
  return {op_def<Linear>(), op_def<LinearInputGrad>(), op_def<LinearGeluGrad>(), op_def<LinearWeightGrad>()};
}

}  // namespace prun
