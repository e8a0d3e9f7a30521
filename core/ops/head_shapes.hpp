// What the ops of an LM head take, and what its products cost.
#pragma once

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// One number for each word, which is added to its logits; and its gradient.
inline constexpr OperandDef head_bias = {"bias", Access::read, true};
inline constexpr OperandDef head_dbias = {"dbias", Access::update, true};

// With a bias, or none, in operand `bias`. `x` may call its width by another name than the weight does, as
// where the head has a projection of its own in front of a table that it shares.
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

// Of one of them.
inline double product_flops(const OpShape& s) {
  const OperandShape& x = s.operand[0];
  return 2.0 * static_cast<double>(x.dims[0].extent * x.dims[1].extent) *
         static_cast<double>(s.operand[1].elements());
}

}  // namespace prun
