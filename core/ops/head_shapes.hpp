// States what the ops of an LM head take, and what its products cost.
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// The bias is one number for each word, which is added to its logits; it has a gradient too.
inline constexpr OperandDef head_bias = {"bias", Access::read, true};
inline constexpr OperandDef head_dbias = {"dbias", Access::update, true};

// Checks a head with a bias, or none, in operand `bias`. `x` may have another name for its width than the
// weight has, as when the head has a projection of its own before a table that it shares.
inline void check_head(const OpShape& s, int bias, const char* kind) {
  const OperandShape &x = s.operand[0], &w = s.operand[1], &b = s.operand[bias];
  require(x.rank == 3 && w.rank == 2 && x.dims[2].extent == w.dims[1].extent, kind,
          " takes x [batch, seq, width] and a weight [vocab, width]");
  require(s.operand[2].dtype == DType::i32, kind, " takes i32 targets [batch, seq]");
  require(!b.present || (b.rank == 1 && b.dims[0] == w.dims[0]), kind, " takes a bias [vocab]");
}

// Marks both widths whole: behind the other marks, since they are one dimension nearly always.
inline void keep_widths_whole(OpShape& s) {
  s.whole(1, 1, 2);
  s.whole(0, 2, 3);
}

// Counts one of these products.
inline double product_flops(const OpShape& s) {
  const OperandShape& x = s.operand[0];
  return 2.0 * static_cast<double>(x.dims[0].extent * x.dims[1].extent) *
         static_cast<double>(s.operand[1].elements());
}

}  // namespace prun
