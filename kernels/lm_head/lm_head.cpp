#include "prun/ops/lm_head.hpp"

#include <vector>

#include "rules/head_shapes.hpp"

namespace prun::ops {

void LmHead::rule(RuleOf<LmHead> s) { set_head(s); }

void LmHead::gradient(GradientOf<LmHead> g) { pass_head_gradients(g); }

// Splits the head if the vocabulary is split: into the ops of lm_head_split, which say what ranks must know
// of each other's logits. Sums over the axes (of scaled, hit and dx) are not written: they follow from where
// it lies.
void LmHead::split(SplitOf<LmHead> s) {
  const Dim& vocab = s.shape()["weight"].dims[0];
  if (s.dim() != vocab.name) return;
  const AttrValue words{"vocab", static_cast<double>(vocab.extent)},
      softcap{"softcap", s.shape().real("softcap")};
  const Id x = s["x"], weight = s["weight"], targets = s["targets"], bias = s["bias"];
  const auto [max, sum, hit] = s.create<3>("lm_head_scan", {x, weight, targets, bias}, {words, softcap});
  Id gmax = max;
  for (std::int32_t axis : s.axes())
    gmax = s.create<1>("all_reduce_max", {gmax}, {{"axis", static_cast<double>(axis)}})[0];
  const auto [scaled] = s.create<1>("lm_head_rescale", {max, gmax, sum});
  const auto [lse] = s.create<1>("lm_head_loss", {gmax, scaled, hit, targets, s["loss"]});
  s.emit("lm_head_grad", {x, weight, targets, lse, s["scale"], s["dweight"], s["dx"], bias, s["dbias"]},
         {softcap});
}

// Counts three products: logits, dx and dweight.
void LmHead::cost(ShapeOf<LmHead> s, OpCost& c) { c.flops = 3 * product_flops(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_ops() { return {op_def<ops::LmHead>()}; }

}  // namespace prun
