#include <vector>

#include "base/require.hpp"
#include "prun/ops/bound.hpp"

namespace prun::ops {

void HaltBeyond::rule(RuleOf<HaltBeyond> s) {
  const OperandShape& needed = s["needed"];
  require(needed.rank == 2 && needed.dims[1].extent == 2 && needed.dtype == DType::f64 &&
              s["halt"].rank == 0 && s["halt"].dtype == DType::f64,
          kind, " takes fp64 [layer, 2] and an fp64 number");
  s.whole("needed", 0, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> bound_ops() {
  using namespace ops;
  return {op_def<HaltBeyond>()};
}

}  // namespace prun
