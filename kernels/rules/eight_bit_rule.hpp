// Says where an op that keeps a moment in 8 bits may be split: never within a block.
#pragma once

#include <algorithm>

#include "prun/op.hpp"

namespace prun {

// Keeps blocks whole: operand `scale` has the dimensions of operand `state`, except for those whose elements
// are in one block.
inline void keep_blocks_whole(OpShape& s, int state, int scale) {
  const OperandShape &all = s.operand[state], &blocks = s.operand[scale];
  if (!blocks.present) return;
  for (int d = 0; d < all.rank; ++d) {
    const bool has = std::any_of(blocks.dims, blocks.dims + blocks.rank,
                                 [&](const Dim& dim) { return dim.name == all.dims[d].name; });
    if (!has) s.whole(all.dims[d].name);
  }
}

}  // namespace prun
