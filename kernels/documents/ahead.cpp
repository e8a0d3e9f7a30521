#include <vector>

#include "base/require.hpp"
#include "prun/ops/ahead.hpp"
#include "rules/positions.hpp"

namespace prun::ops {

void Ahead::rule(RuleOf<Ahead> s) {
  const OperandShape &x = s["x"], &documents = s["documents"];
  require(x.rank == 2 && x.dtype == DType::i32, "ahead takes i32 numbers [batch, seq]");
  require(!documents.present || (documents.rank == 2 && documents.dtype == DType::i32 &&
                                 documents.dims[0] == x.dims[0] && documents.dims[1] == x.dims[1]),
          "ahead takes i32 documents [batch, seq]");
  require(s.integer("by") >= 1, "ahead: `by` is at least 1");
  check_positions(s, s.at("x"), s.at("positions"), kind);
  s.like("y", "x");
  s.whole("x", 1, 2);
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> ahead_ops() {
  using namespace ops;
  return {op_def<Ahead>()};
}

}  // namespace prun
