// What the ops of an LM head take, and what its products cost.
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

inline void check_head(const OpShape& s, const char* kind) {
  const OperandShape &x = s.operand[0], &w = s.operand[1];
  require(x.rank == 3 && w.rank == 2 && x.dims[2] == w.dims[1], kind,
          " takes x [batch, seq, width] and a weight [vocab, width]");
  require(s.operand[2].dtype == DType::i32, kind, " takes i32 targets [batch, seq]");
}

// Of one of them.
inline double product_flops(const OpShape& s) {
  const OperandShape& x = s.operand[0];
  return 2.0 * static_cast<double>(x.dims[0].extent * x.dims[1].extent) *
         static_cast<double>(s.operand[1].elements());
}

}  // namespace prun
