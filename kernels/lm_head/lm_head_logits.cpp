#include "prun/ops/lm_head_logits.hpp"

#include <vector>

#include "rules/head_shapes.hpp"

namespace prun::ops {

void LmHeadLogits::rule(RuleOf<LmHeadLogits> s) {
  const OperandShape &x = s["x"], &w = s["weight"];
  check_head(s);
  const Dim dims[] = {x.dims[0], w.dims[0]};
  s.output("logits", OpShape::statistics(x.dtype), dims, 2);
  s.sum("x", 1, 2);
  // A bounded logit is no sum of parts of the width.
  if (x.dims[2] == w.dims[1] && !s.has("bias") && s.real("softcap") == 0)
    s.sum("x", 2, 3);
  else
    keep_widths_whole(s);
}

void LmHeadLogits::cost(ShapeOf<LmHeadLogits> s, OpCost& c) {
  c.flops = 2.0 * static_cast<double>(s["x"].dims[0].extent) * static_cast<double>(s["weight"].elements());
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_logits_ops() { return {op_def<ops::LmHeadLogits>()}; }

}  // namespace prun
