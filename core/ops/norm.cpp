// layernorm and rmsnorm over the last dimension. The statistics backward needs are kept beside the result, in
// fp32 (fp64 where the values are fp64).
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef eps_attr[] = {real_attr("eps", 1e-5)};

void statistics(OpShape& s, int i) {
  const OperandShape& x = s.operand[0];
  s.output(i, OpShape::statistics(x.dtype), x.dims, x.rank - 1);
}

// What passes the norm by, in operand i, has the shape and type of x in operand 1.
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
  static constexpr const char* help = "y = x / sqrt(mean(x^2) + eps) * gain";
  static constexpr OperandDef operands[] = {{"x"}, {"gain"}, {"y", Access::write}, {"rstd", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = eps_attr;
  static void rule(OpShape& s) {
    s.like(2, 0);
    statistics(s, 3);
    s.whole(1, 0, 1);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "rmsnorm_input_grad", {g.arrived(2), g.operand(0), g.operand(1), g.operand(3), none});
    g.weight({1}, "rmsnorm_weight_grad", {g.arrived(2), g.operand(0), g.operand(3)});
  }
};

struct RmsNormInputGrad {
  static constexpr const char* kind = "rmsnorm_input_grad";
  static constexpr const char* help = "dx of rmsnorm, with the gradient that passed it by added";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"gain"}, {"rstd"}, {"residual", Access::read, true}, {"dx", Access::write}};
  static void rule(OpShape& s) {
    check_residual(s, 4);
    s.like(5, 0);
    s.whole(2, 0, 1);
  }
};

struct RmsNormWeightGrad {
  static constexpr const char* kind = "rmsnorm_weight_grad";
  static constexpr const char* help = "dgain of rmsnorm";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"rstd"}, {"dgain", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    s.sum(0, 0, s.operand[0].rank - 1);
    s.whole(0, s.operand[0].rank - 1, s.operand[0].rank);
  }
};

}  // namespace

std::vector<OpDef> norm_ops() {
  return {op_def<LayerNorm>(), op_def<LayerNormInputGrad>(), op_def<LayerNormWeightGrad>(),
          op_def<RmsNorm>(),   op_def<RmsNormInputGrad>(),   op_def<RmsNormWeightGrad>()};
}

}  // namespace prun
