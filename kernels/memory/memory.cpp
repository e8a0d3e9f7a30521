#include <vector>

#include "base/require.hpp"
#include "prun/ops/memory.hpp"

namespace prun::ops {

void Zero::rule(RuleOf<Zero>) {}

void Copy::rule(RuleOf<Copy> s) {
  s.like("y", "x");
  s.pass_partial({"x"});
  s.pass_maximum({"x"});
}

void Total::rule(RuleOf<Total> s) {
  s.like("y", "x");
  s.whole("x", 0, s["x"].rank);
}

void WholeLogits::rule(RuleOf<WholeLogits> s) {
  require(s["x"].rank == 2, "whole_logits takes x [batch, vocab]");
  s.like("y", "x");
  s["y"].dims[1].name = "logits";  // a name that no axis is requested to split
  s.whole("x", 1, 2);
}

void Checksum::rule(RuleOf<Checksum> s) {
  const Dim several{"sums", 128};
  s.output("sums", DType::i64, &several, 1);
  s.whole("x", 0, s["x"].rank);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> memory_ops() {
  using namespace ops;
  return {op_def<Zero>(), op_def<Copy>(), op_def<Total>(), op_def<WholeLogits>(), op_def<Checksum>()};
}

}  // namespace prun
