// Compares the shapes of operands of the gated delta rule, and of what stands in front of it.
#pragma once

#include "prun/op.hpp"

namespace prun {

inline bool begins_alike(const OperandShape& a, const OperandShape& b, int dims) {
  bool alike = a.rank >= dims && b.rank >= dims;
  for (int d = 0; alike && d < dims; ++d) alike = a.dims[d] == b.dims[d];
  return alike;
}

// Says whether two values have the same positions and heads, but for the last dimension of heads, of which
// `more` has some times as many. `rank` is that of what has a number for each head.
inline bool shares_heads(const OperandShape& few, const OperandShape& more, int rank) {
  return rank >= 3 && begins_alike(few, more, rank - 1) &&
         few.dims[rank - 1].name == more.dims[rank - 1].name &&
         more.dims[rank - 1].extent % few.dims[rank - 1].extent == 0;
}

}  // namespace prun
