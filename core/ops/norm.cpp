// Defines layernorm over the last dimension and rmsnorm over the last `dims`. The statistics backward needs
// are kept beside the result, in fp32 (fp64 where the values are fp64). rmsnorm multiplies by offset + gain.
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef eps_attr[] = {real_attr("eps", 1e-5)};
constexpr AttrDef rms_attrs[] = {real_attr("eps", 1e-5), later(real_attr("offset", 0.0)),
                                 later(int_attr("dims", 1))};
constexpr AttrDef rms_input_grad_attrs[] = {later(real_attr("offset", 0.0)), later(int_attr("dims", 1))};
constexpr AttrDef rms_weight_grad_attrs[] = {later(int_attr("dims", 1))};

void statistics(OpShape& s, int i, int dims = 1) {
  const OperandShape& x = s.operand[0];
  s.output(i, OpShape::statistics(x.dtype), x.dims, x.rank - dims);
}

// Returns how many dimensions of x, in operand `x`, a gain has: the last of them. If there are several, it
// may have other names for them, which no request to split x's reaches; both are whole, since a row is.
int row_dims(const OpShape& s, int x, int gain, const Attr& dims) {
  const OperandShape &of = s.operand[x], &by = s.operand[gain];
  const auto n = static_cast<int>(dims.i);
  bool fits = dims.i >= 1 && dims.i < of.rank && by.rank == n;
  for (int d = 0; fits && d < n; ++d)
    fits = n == 1 ? by.dims[d] == of.dims[of.rank - 1] : by.dims[d].extent == of.dims[of.rank - n + d].extent;
  require(fits, "rmsnorm takes a gain of the last `dims` dimensions of x");
  return n;
}

// Checks that what bypasses the norm, in operand i, has the shape and type of x in operand 1.
void check_residual(const OpShape& s, int i) {
  const OperandShape &residual = s.operand[i], &x = s.operand[1];
  bool same = residual.rank == x.rank && residual.dtype == x.dtype;
  for (int d = 0; same && d < x.rank; ++d) same = residual.dims[d] == x.dims[d];
  require(!residual.present || same, "a norm's gradient takes a residual of x's type and shape");
}

struct LayerNorm {
  static constexpr const char* kind = "layernorm";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = (x - mean) / sqrt(variance + eps) * gain + bias";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"gain"},
                                            {"bias", Access::read, true},
                                            {"y", Access::write},
                                            {"mean", Access::write},
                                            {"rstd", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = eps_attr;
  static void rule(OpShape& s) {
    s.like(3, 0);
    statistics(s, 4);
    statistics(s, 5);
    s.whole(1, 0, 1);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "layernorm_input_grad",
            {g.arrived(3), g.operand(0), g.operand(1), g.operand(4), g.operand(5), none});
    g.weight({1, 2}, "layernorm_weight_grad", {g.arrived(3), g.operand(0), g.operand(4), g.operand(5)});
  }
};

struct LayerNormInputGrad {
  static constexpr const char* kind = "layernorm_input_grad";
  static constexpr const char* help = "dx of layernorm, with the gradient that passed it by added";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"gain"}, {"mean"}, {"rstd"}, {"residual", Access::read, true}, {"dx", Access::write}};
  static void rule(OpShape& s) {
    check_residual(s, 5);
    s.like(6, 0);
    s.whole(2, 0, 1);
  }
};

struct LayerNormWeightGrad {
  static constexpr const char* kind = "layernorm_weight_grad";
  static constexpr const char* help = "dgain and dbias of layernorm";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"mean"}, {"rstd"}, {"dgain", Access::update, true}, {"dbias", Access::update, true}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    s.sum(0, 0, s.operand[0].rank - 1);
    s.whole(0, s.operand[0].rank - 1, s.operand[0].rank);
  }
};

struct RmsNorm {
  static constexpr const char* kind = "rmsnorm";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x / sqrt(mean(x^2) + eps) * (offset + gain)";
  static constexpr OperandDef operands[] = {{"x"}, {"gain"}, {"y", Access::write}, {"rstd", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = rms_attrs;
  static void rule(OpShape& s) {
    const int dims = row_dims(s, 0, 1, s.attrs[2]);
    s.like(2, 0);
    statistics(s, 3, dims);
    s.whole(1, 0, dims);
    s.whole(0, s.operand[0].rank - dims, s.operand[0].rank);
  }
  static void gradient(const Gradient& g) {
    const AttrValue dims{"dims", g.attr("dims")};
    g.input(0, "rmsnorm_input_grad", {g.arrived(2), g.operand(0), g.operand(1), g.operand(3), none},
            {{"offset", g.attr("offset")}, dims});
    g.weight({1}, "rmsnorm_weight_grad", {g.arrived(2), g.operand(0), g.operand(3)}, {dims});
  }
};

struct RmsNormInputGrad {
  static constexpr const char* kind = "rmsnorm_input_grad";
  static constexpr const char* help = "dx of rmsnorm, with the gradient that passed it by added";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"gain"}, {"rstd"}, {"residual", Access::read, true}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = rms_input_grad_attrs;
  static void rule(OpShape& s) {
    check_residual(s, 4);
    s.like(5, 0);
    const int rank = s.operand[1].rank, dims = row_dims(s, 1, 2, s.attrs[1]);
    s.whole(2, 0, dims);
    s.whole(1, rank - dims, rank);
  }
};

struct RmsNormWeightGrad {
  static constexpr const char* kind = "rmsnorm_weight_grad";
  static constexpr const char* help = "dgain of rmsnorm";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"rstd"}, {"dgain", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = rms_weight_grad_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    const int rank = s.operand[0].rank, dims = row_dims(s, 1, 3, s.attrs[0]);
    s.sum(0, 0, rank - dims);
    s.whole(0, rank - dims, rank);
  }
};

}  // namespace

std::vector<OpDef> norm_ops() {
  return {op_def<LayerNorm>(), op_def<LayerNormInputGrad>(), op_def<LayerNormWeightGrad>(),
          op_def<RmsNorm>(),   op_def<RmsNormInputGrad>(),   op_def<RmsNormWeightGrad>()};
}

}  // namespace prun
