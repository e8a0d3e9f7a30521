// linear: y[..., out] = x[..., in] * weight[out, in] + bias[out], where `out` and `in` may each be several
// dimensions (in_dims says how many of the weight's last ones are summed over).
// Its two gradients are separate ops, so that a schedule may move the weight's apart. linear_gelu_grad is the
// input's through a gelu before it: for devices that do both in one.
#include <vector>

#include "base/require.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef linear_attrs[] = {int_attr("in_dims", 1), later(int_attr("fp8", 0)),
                                    later(int_attr("fp8_from", 0)), later(int_attr("fp8_until", 0))};
constexpr AttrDef in_dims_attr[] = {int_attr("in_dims", 1)};

// Says whether a product comes in blocks, for a weight [out.., in..] and a value with so many dimensions of
// rows. Each sequence comes in whole blocks, so that it does not matter how many are computed at once.
bool product_in_blocks(const OpShape& part, const OpShape& whole, int value, int rows, int weight) {
  const OperandShape &x = part.operand[value], &w = part.operand[weight];
  const OperandShape &all_x = whole.operand[value], &all_w = whole.operand[weight];
  const int out = w.rank - static_cast<int>(part.attrs[0].i);
  return comes_in_blocks(x, all_x, 0, rows) && x.dims[rows - 1].extent % fp8_block == 0 &&
         comes_in_blocks(w, all_w, 0, out) && comes_in_blocks(w, all_w, out, w.rank);
}

int dims_in(const OpShape& s) { return static_cast<int>(s.attrs[0].i); }

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

// Checks that operand 1 is codes of a weight [out.., in..], whose dimensions two other values have from
// `lead` on, and marks those that the codes do not have.
void take_weight_codes(OpShape& s, const OperandShape& out, const OperandShape& in, int lead, bool by_rows,
                       const char* op) {
  const OperandShape& codes = s.operand[1];
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

struct Linear {
  static constexpr const char* kind = "linear";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "matrix product with a weight, bias optional";
  static constexpr OperandDef operands[] = {
      {"x"}, {"weight"}, {"bias", Access::read, true}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static void rule(OpShape& s) {
    if (s.attrs[1].i == 2) return rule_of_codes(s);
    const OperandShape &x = s.operand[0], &w = s.operand[1];
    const int in = static_cast<int>(s.attrs[0].i), out = w.rank - in, lead = x.rank - in;
    require(in >= 1 && out >= 1 && lead >= 1, "linear: in_dims ", in, " does not fit the operands");
    require(lead + out <= max_dims, "linear: the result has more than ", max_dims, " dimensions");
    check_same(x, lead, w, out, in, "linear");
    if (s.operand[2].present) check_same(w, 0, s.operand[2], 0, out, "linear bias");
    Dim dims[max_dims];
    for (int i = 0; i < lead; ++i) dims[i] = x.dims[i];
    for (int i = 0; i < out; ++i) dims[lead + i] = w.dims[i];
    s.output(3, x.dtype, dims, lead + out);
    s.sum(1, out, w.rank);
    // A partial x gives a partial y; a bias must then be a partial sum as well, so that it counts once.
    s.pass_partial({0, 2});
  }
  // Takes codes of the weight by rows: y says which dimensions a weight's rows have.
  static void rule_of_codes(OpShape& s) {
    const OperandShape &x = s.operand[0], &y = s.operand[3];
    const int lead = x.rank - dims_in(s);
    require(lead >= 1 && is_float(x.dtype) && y.present && y.dtype == x.dtype && y.rank > lead,
            "linear: in_dims ", dims_in(s), " does not fit the operands");
    check_same(x, 0, y, 0, lead, kind);
    take_weight_codes(s, y, x, lead, true, kind);
    if (s.operand[2].present) check_same(y, lead, s.operand[2], 0, y.rank - lead, "linear bias");
    s.sum(0, lead, x.rank);
    s.pass_partial({0, 2});
  }
  static bool in_blocks(const OpShape& part, const OpShape& whole) {
    return product_in_blocks(part, whole, 0, part.operand[0].rank - dims_in(part), 1);
  }
  static void gradient(const Gradient& g) {
    const AttrValue in{"in_dims", g.attr("in_dims")}, fp8{"fp8", g.attr("fp8")};
    g.input(0, "linear_input_grad", {g.arrived(3), g.operand(1)}, {in, fp8});
    g.weight({1}, "linear_weight_grad", {g.operand(0), g.arrived(3)}, {in, fp8});
    g.weight({2}, "bias_grad", {g.arrived(3)});
  }
  static void cost(const OpShape& s, OpCost& c) {
    const OperandShape &x = s.operand[0], &y = s.operand[3];
    const int lead = x.rank - dims_in(s);
    const std::int64_t width = x.elements() / leading(x, lead);
    if (s.attrs[1].i == 2)
      c.flops = 2.0 * static_cast<double>(y.elements()) * static_cast<double>(width);
    else
      c.flops = matmul_flops(leading(x, lead), s.operand[1]);
  }
};

double input_grad_flops(const OpShape& s) {
  const int out = s.operand[1].rank - static_cast<int>(s.attrs[0].i);
  return matmul_flops(leading(s.operand[0], s.operand[0].rank - out), s.operand[1]);
}

struct LinearInputGrad {
  static constexpr const char* kind = "linear_input_grad";
  static constexpr const char* help = "dx = dy * weight";
  static constexpr OperandDef operands[] = {{"dy"}, {"weight"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static void rule(OpShape& s) {
    if (s.attrs[1].i == 2) return rule_of_codes(s);
    const OperandShape &dy = s.operand[0], &w = s.operand[1];
    const int in = static_cast<int>(s.attrs[0].i), out = w.rank - in, lead = dy.rank - out;
    check_same(dy, lead, w, 0, out, "linear_input_grad");
    Dim dims[max_dims];
    for (int i = 0; i < lead; ++i) dims[i] = dy.dims[i];
    for (int i = 0; i < in; ++i) dims[lead + i] = w.dims[out + i];
    s.output(2, dy.dtype, dims, lead + in);
    s.sum(1, 0, out);
    s.pass_partial({0});
  }
  // Takes codes of the weight by columns: dx says which dimensions its columns have.
  static void rule_of_codes(OpShape& s) {
    const OperandShape &dy = s.operand[0], &dx = s.operand[2];
    const int lead = dx.rank - dims_in(s);
    require(lead >= 1 && is_float(dy.dtype) && dx.present && dx.dtype == dy.dtype && dy.rank > lead,
            "linear_input_grad: in_dims ", dims_in(s), " does not fit the operands");
    check_same(dy, 0, dx, 0, lead, kind);
    take_weight_codes(s, dy, dx, lead, false, kind);
    s.sum(0, lead, dy.rank);
    s.pass_partial({0});
  }
  static bool in_blocks(const OpShape& part, const OpShape& whole) {
    return product_in_blocks(part, whole, 2, part.operand[2].rank - dims_in(part), 1);
  }
  static void cost(const OpShape& s, OpCost& c) {
    const OperandShape &dy = s.operand[0], &dx = s.operand[2];
    const std::int64_t width = dy.elements() / leading(dy, dx.rank - dims_in(s));
    c.flops = s.attrs[1].i != 2 ? input_grad_flops(s)
                                : 2.0 * static_cast<double>(dx.elements()) * static_cast<double>(width);
  }
};

struct LinearGeluGrad {
  static constexpr const char* kind = "linear_gelu_grad";
  static constexpr const char* help = "dx = dy * weight * gelu'(x), with dx and x on the other side of gelu";
  static constexpr OperandDef operands[] = {{"dy"}, {"weight"}, {"x"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = in_dims_attr;
  static void rule(OpShape& s) {
    const OperandShape &dy = s.operand[0], &w = s.operand[1], &x = s.operand[2];
    const int in = static_cast<int>(s.attrs[0].i), out = w.rank - in, lead = dy.rank - out;
    check_same(dy, lead, w, 0, out, "linear_gelu_grad");
    require(x.rank == lead + in && x.dtype == dy.dtype, "linear_gelu_grad: x has another shape or type");
    check_same(x, 0, dy, 0, lead, "linear_gelu_grad");
    check_same(x, lead, w, out, in, "linear_gelu_grad");
    s.like(3, 2);
    s.sum(1, 0, out);
  }
  static void cost(const OpShape& s, OpCost& c) { c.flops = input_grad_flops(s); }
};

struct LinearWeightGrad {
  static constexpr const char* kind = "linear_weight_grad";
  static constexpr const char* help = "dweight += dy^T * x";
  static constexpr OperandDef operands[] = {{"x"}, {"dy"}, {"dweight", Access::update}};
  static constexpr const AttrDef (&attrs)[4] = linear_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    if (s.attrs[1].i == 2) return rule_of_codes(s);
    const OperandShape& x = s.operand[0];
    const int lead = x.rank - static_cast<int>(s.attrs[0].i);
    check_same(x, 0, s.operand[1], 0, lead, "linear_weight_grad");
    s.sum(0, 0, lead);
  }
  // Sets x to the codes of its squares.
  static void rule_of_codes(OpShape& s) {
    const OperandShape &codes = s.operand[0], &dy = s.operand[1], &w = s.operand[2];
    const int in = static_cast<int>(s.attrs[0].i), out = w.rank - in, lead = dy.rank - out;
    require(in >= 1 && lead >= 1, "linear_weight_grad: in_dims ", in, " does not fit the operands");
    OperandShape x = dy;
    x.rank = lead + in;
    for (int i = 0; i < in; ++i) x.dims[lead + i] = w.dims[out + i];
    const OperandShape right = fp8_squares_of(x, in);
    require(right.present && codes.dtype == right.dtype && codes.rank == right.rank,
            "linear_weight_grad takes codes of squares of a value where fp8 is 2");
    check_same(codes, 0, right, 0, right.rank, "linear_weight_grad");
    s.sum(0, 1, right.rank);
    s.whole(2, out + 1, w.rank);
  }
  static bool in_blocks(const OpShape& part, const OpShape& whole) {
    return product_in_blocks(part, whole, 0, part.operand[0].rank - dims_in(part), 2);
  }
  static void cost(const OpShape& s, OpCost& c) {
    const int out = s.operand[2].rank - dims_in(s);
    c.flops = matmul_flops(leading(s.operand[1], s.operand[1].rank - out), s.operand[2]);
  }
};

struct BiasGrad {
  static constexpr const char* kind = "bias_grad";
  static constexpr const char* help = "dbias += dy summed over its leading dimensions";
  static constexpr OperandDef operands[] = {{"dy"}, {"dbias", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(0, 0, s.operand[0].rank - s.operand[1].rank); }
};

}  // namespace

std::vector<OpDef> linear_ops() {
  return {op_def<Linear>(), op_def<LinearInputGrad>(), op_def<LinearGeluGrad>(), op_def<LinearWeightGrad>(),
          op_def<BiasGrad>()};
}

}  // namespace prun
