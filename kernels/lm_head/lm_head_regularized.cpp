#include "prun/ops/lm_head_regularized.hpp"

#include <vector>

#include "rules/head_shapes.hpp"

namespace prun::ops {
namespace {

void check_regularized(double z, double smoothing, const char* kind) {
  require(z >= 0 && smoothing >= 0 && smoothing < 1, kind, ": z is ", z, " and smoothing ", smoothing,
          "; z is 0 or more, smoothing lies in [0, 1)");
}

}  // namespace

void LmHeadRegularized::rule(RuleOf<LmHeadRegularized> s) {
  set_head(s);
  check_regularized(s.real("z"), s.real("smoothing"), kind);
}

void LmHeadRegularized::gradient(GradientOf<LmHeadRegularized> g) { pass_head_gradients(g); }

void LmHeadRegularized::split(SplitOf<LmHeadRegularized> s) {
  const ShapeOf<LmHeadRegularized> shape = s.shape();
  const Dim& vocab = shape["weight"].dims[0];
  if (s.dim() != vocab.name) return;
  const AttrValue words{"vocab", static_cast<double>(vocab.extent)}, z{"z", shape.real("z")},
      smoothing{"smoothing", shape.real("smoothing")}, softcap{"softcap", shape.real("softcap")};
  const Id x = s["x"], weight = s["weight"], targets = s["targets"], bias = s["bias"];
  const auto [max, sum, hit] =
      s.create<3>("lm_head_regularized_scan", {x, weight, targets, bias}, {words, smoothing, softcap});
  Id gmax = max;
  for (std::int32_t axis : s.axes())
    gmax = s.create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
  const auto [scaled] = s.create<1>("lm_head_rescale", {max, gmax, sum});
  const auto [lse] = s.create<1>("lm_head_regularized_loss", {gmax, scaled, hit, targets, s["loss"]}, {z});
  s.emit("lm_head_regularized_grad",
         {x, weight, targets, lse, s["scale"], s["dweight"], s["dx"], bias, s["dbias"]},
         {words, z, smoothing, softcap});
}

void LmHeadRegularized::cost(ShapeOf<LmHeadRegularized> s, OpCost& c) { c.flops = 3 * product_flops(s); }

void LmHeadRegularizedScan::rule(RuleOf<LmHeadRegularizedScan> s) {
  set_head_scan(s);
  check_regularized(0, s.real("smoothing"), kind);
}

void LmHeadRegularizedScan::cost(ShapeOf<LmHeadRegularizedScan> s, OpCost& c) {
  c.flops = c.repeated = product_flops(s);
}

void LmHeadRegularizedLoss::rule(RuleOf<LmHeadRegularizedLoss> s) { set_head_loss(s); }

void LmHeadRegularizedGrad::rule(RuleOf<LmHeadRegularizedGrad> s) {
  set_head_gradients(s);
  check_regularized(s.real("z"), s.real("smoothing"), kind);
}

void LmHeadRegularizedGrad::cost(ShapeOf<LmHeadRegularizedGrad> s, OpCost& c) {
  c.flops = 3 * product_flops(s);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_regularized_ops() {
  using namespace ops;
  return {op_def<LmHeadRegularized>(), op_def<LmHeadRegularizedScan>(), op_def<LmHeadRegularizedLoss>(),
          op_def<LmHeadRegularizedGrad>()};
}

}  // namespace prun
