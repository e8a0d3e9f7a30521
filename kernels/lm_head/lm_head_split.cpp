#include "prun/ops/lm_head_split.hpp"

#include <vector>

#include "rules/head_shapes.hpp"

namespace prun::ops {

void LmHeadScan::rule(RuleOf<LmHeadScan> s) { set_head_scan(s); }

// lm_head_grad needs the logits again, and counts them.
void LmHeadScan::cost(ShapeOf<LmHeadScan> s, OpCost& c) { c.flops = c.repeated = product_flops(s); }

void LmHeadRescale::rule(RuleOf<LmHeadRescale> s) {
  s.like("scaled", "sum");
  s.pass_partial({"max", "sum"});
}

void LmHeadLoss::rule(RuleOf<LmHeadLoss> s) { set_head_loss(s); }

void LmHeadGrad::rule(RuleOf<LmHeadGrad> s) { set_head_gradients(s); }

// Counts three products, as in lm_head: logits, dx and dweight.
void LmHeadGrad::cost(ShapeOf<LmHeadGrad> s, OpCost& c) { c.flops = 3 * product_flops(s); }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_split_ops() {
  using namespace ops;
  return {op_def<LmHeadScan>(), op_def<LmHeadRescale>(), op_def<LmHeadLoss>(), op_def<LmHeadGrad>()};
}

}  // namespace prun
