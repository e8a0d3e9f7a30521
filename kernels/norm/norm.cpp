#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/norm.hpp"

namespace prun::ops {
namespace {

template <class Op>
void statistics(RuleOf<Op> s, OperandOf<Op> name, int dims = 1) {
  const OperandShape& x = s["x"];
  s.output(name, OpShape::statistics(x.dtype), x.dims, x.rank - dims);
}

// Returns how many dimensions of x a gain has: the last of them. If there are several, it may have other
// names for them, which no request to split x's reaches; both are whole, since a row is.
int row_dims(const OperandShape& of, const OperandShape& by, std::int64_t dims) {
  const auto n = static_cast<int>(dims);
  bool fits = dims >= 1 && dims < of.rank && by.rank == n;
  for (int d = 0; fits && d < n; ++d)
    fits = n == 1 ? by.dims[d] == of.dims[of.rank - 1] : by.dims[d].extent == of.dims[of.rank - n + d].extent;
  require(fits, "rmsnorm takes a gain of the last `dims` dimensions of x");
  return n;
}

// Checks that what bypasses the norm has the shape and type of x.
void check_residual(const OperandShape& residual, const OperandShape& x) {
  bool same = residual.rank == x.rank && residual.dtype == x.dtype;
  for (int d = 0; same && d < x.rank; ++d) same = residual.dims[d] == x.dims[d];
  require(!residual.present || same, "a norm's gradient takes a residual of x's type and shape");
}

}  // namespace

void LayerNorm::rule(RuleOf<LayerNorm> s) {
  s.like("y", "x");
  statistics(s, "mean");
  statistics(s, "rstd");
  s.whole("gain", 0, 1);
}

void LayerNorm::gradient(GradientOf<LayerNorm> g) {
  input_gradient<LayerNormInputGrad>(g, {"x"}, {{"dy", g.arrived("y")}});
  weight_gradient<LayerNormWeightGrad>(g, {"gain", "bias"}, {{"dy", g.arrived("y")}});
}

void LayerNormInputGrad::rule(RuleOf<LayerNormInputGrad> s) {
  check_residual(s["residual"], s["x"]);
  s.like("dx", "dy");
  s.whole("gain", 0, 1);
}

void LayerNormWeightGrad::rule(RuleOf<LayerNormWeightGrad> s) {
  s.sum("dy", 0, s["dy"].rank - 1);
  s.whole("dy", s["dy"].rank - 1, s["dy"].rank);
}

void RmsNorm::rule(RuleOf<RmsNorm> s) {
  const int dims = row_dims(s["x"], s["gain"], s.integer("dims"));
  s.like("y", "x");
  statistics(s, "rstd", dims);
  s.whole("gain", 0, dims);
  s.whole("x", s["x"].rank - dims, s["x"].rank);
}

void RmsNorm::gradient(GradientOf<RmsNorm> g) {
  const AttrValue dims{"dims", g.attr("dims")};
  input_gradient<RmsNormInputGrad>(g, {"x"}, {{"dy", g.arrived("y")}}, {{"offset", g.attr("offset")}, dims});
  weight_gradient<RmsNormWeightGrad>(g, {"gain"}, {{"dy", g.arrived("y")}}, {dims});
}

void RmsNormInputGrad::rule(RuleOf<RmsNormInputGrad> s) {
  check_residual(s["residual"], s["x"]);
  s.like("dx", "dy");
  const int rank = s["x"].rank, dims = row_dims(s["x"], s["gain"], s.integer("dims"));
  s.whole("gain", 0, dims);
  s.whole("x", rank - dims, rank);
}

void RmsNormWeightGrad::rule(RuleOf<RmsNormWeightGrad> s) {
  const int rank = s["dy"].rank, dims = row_dims(s["x"], s["dgain"], s.integer("dims"));
  s.sum("dy", 0, rank - dims);
  s.whole("dy", rank - dims, rank);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> norm_ops() {
  using namespace ops;
  return {op_def<LayerNorm>(), op_def<LayerNormInputGrad>(), op_def<LayerNormWeightGrad>(),
          op_def<RmsNorm>(),   op_def<RmsNormInputGrad>(),   op_def<RmsNormWeightGrad>()};
}

}  // namespace prun
