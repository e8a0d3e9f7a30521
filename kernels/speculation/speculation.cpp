#include "prun/ops/speculation.hpp"

#include <vector>

namespace prun::ops {

void BeginSpeculation::rule(RuleOf<BeginSpeculation> s) { s.scalar("did", DType::f64); }

void KeepOld::rule(RuleOf<KeepOld> s) { s.like("old", "x"); }

void SettleUpdate::rule(RuleOf<SettleUpdate> s) {
  s.scalar("beyond", DType::f64);
  s.scalar("restore", DType::f64);
  s.scalar("redo", DType::f64);
}

void RestoreOld::rule(RuleOf<RestoreOld>) {}

// In a step within the limit it reads nothing.
void RestoreOld::cost(ShapeOf<RestoreOld>, OpCost& c) { c.bytes = 0; }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> speculation_ops() {
  using namespace ops;
  return {op_def<BeginSpeculation>(), op_def<KeepOld>(), op_def<SettleUpdate>(), op_def<RestoreOld>()};
}

}  // namespace prun
