// Ops that do for one position of a sequence what another op does for all of it (OpDef::at_position).
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// `x` [batch, seq, ...], and which position its only one is.
inline void require_one_position(const OperandShape& x, const OperandShape& position, const char* op) {
  require(x.rank > 1 && x.dims[1].extent == 1 && position.rank == 0 && position.dtype == DType::f64, op,
          " takes one position of each sequence, and which one as a number in fp64");
}

}  // namespace prun
