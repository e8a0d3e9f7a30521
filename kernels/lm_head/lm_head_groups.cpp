#include "prun/ops/lm_head_groups.hpp"

#include <vector>

#include "base/require.hpp"

namespace prun::ops {

void LmHeadGroups::rule(RuleOf<LmHeadGroups> s) {
  const OperandShape& sums = s["sums"];
  require(s["gmax"].rank == 2, kind, " takes gmax, scaled and hit [batch, seq]");
  require(s["targets"].dtype == DType::i32 && s["groups"].dtype == DType::i32, kind,
          " takes i32 targets and groups [batch, seq]");
  require(sums.rank == 3 && sums.dims[2].extent == 2 && sums.dtype == DType::f64, kind,
          " takes fp64 sums [layer, group, 2]");
  s.sum("gmax", 0, 2);
  s.whole("sums", 0, 3);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> lm_head_groups_ops() { return {op_def<ops::LmHeadGroups>()}; }

}  // namespace prun
