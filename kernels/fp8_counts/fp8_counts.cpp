#include <vector>

#include "base/require.hpp"
#include "prun/fp8_blocks.hpp"
#include "prun/ops/fp8_counts.hpp"

namespace prun::ops {
namespace {

template <class Op>
void check_counts(const ShapeOf<Op>& s, const OperandShape& counts) {
  const char* const op = Op::kind;
  const OperandShape &x = s["x"], &on = s["on"];
  const std::int64_t in = s.integer("in_dims"), blocks = s.integer("blocks"), place = s.integer("place");
  require(is_float(x.dtype) && in >= 1 && in < x.rank, op, ": in_dims ", in, " does not fit x");
  require(blocks >= 0 && blocks <= static_cast<std::int64_t>(Fp8Blocks::squares), op, ": no blocks ", blocks);
  require(on.rank == 0 && on.dtype == DType::f64, op, ": `on` is a number in fp64");
  require(counts.rank == 2 && counts.dtype == DType::f64 && counts.dims[1].extent == 3, op,
          " counts into fp64 [place, 3]");
  require(place >= 0 && place < counts.dims[0].extent, op, ": there is no place ", place);
}

}  // namespace

void CountFp8Codes::rule(RuleOf<CountFp8Codes> s) {
  check_counts(s, s["counts"]);
  s.sum("x", 0, s["x"].rank);
  s.whole("counts", 0, 2);
}

// In most steps nothing is read.
void CountFp8Codes::cost(ShapeOf<CountFp8Codes>, OpCost& c) { c.bytes = 0; }

void PeakFp8Scales::rule(RuleOf<PeakFp8Scales> s) {
  check_counts(s, s["peaks"]);
  s.max("x", 0, s["x"].rank);
  s.whole("peaks", 0, 2);
  s.pass_maximum({"peaks"});
}

void PeakFp8Scales::cost(ShapeOf<PeakFp8Scales>, OpCost& c) { c.bytes = 0; }

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> fp8_counts_ops() {
  using namespace ops;
  return {op_def<CountFp8Codes>(), op_def<PeakFp8Scales>()};
}

}  // namespace prun
