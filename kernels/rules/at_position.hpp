// Checks ops that do for some positions of a sequence what another op does for all of it
// (OpDef::at_position).
#pragma once

#include "base/require.hpp"
#include "prun/named_operands.hpp"

namespace prun {

// Requires `x` [batch, seq, ...], and a scalar that states which position its first one is.
inline void require_position(const OperandShape& x, const OperandShape& position, const char* op) {
  require(x.rank > 1 && position.rank == 0 && position.dtype == DType::f64, op,
          " takes some positions of each sequence, and the first one's number in fp64");
}

// Requires `kept` to have all of `x`, by position.
template <class Op>
void check_kept(const RuleOf<Op>& s, OperandOf<Op> kept, OperandOf<Op> x) {
  const OperandShape &all = s[kept], &one = s[x];
  bool alike = all.rank == one.rank && all.dtype == one.dtype;
  for (int d = 0; alike && d < one.rank; ++d)
    alike = d == 1 ? all.dims[d].extent >= one.dims[d].extent : all.dims[d] == one.dims[d];
  require(alike, Op::kind, " keeps keys and values as they come, of more positions");
  s.whole(kept, 1, 2);
}

}  // namespace prun
