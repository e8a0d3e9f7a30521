// Checks ops that do for some positions of a sequence what another op does for all of it
// (OpDef::at_position).
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// Requires `x` [batch, seq, ...], and a scalar that states which position its first one is.
inline void require_position(const OperandShape& x, const OperandShape& position, const char* op) {
  require(x.rank > 1 && position.rank == 0 && position.dtype == DType::f64, op,
          " takes some positions of each sequence, and the first one's number in fp64");
}

}  // namespace prun
