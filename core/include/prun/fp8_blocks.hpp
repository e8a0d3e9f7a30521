// SPDX-License-Identifier: Apache-2.0
// Matrix products in fp8 whose operands keep their type: the op rounds them to e4m3 (3 mantissa bits, at most
// 448) in blocks with a scale each, and multiplies the rounded values; sums and results are as without fp8. A
// scale is the smallest power of two by which the block's largest magnitude is at most 448, so that rounding
// twice gives the same as rounding once. Rounding is to nearest, ties to even. A block with a non-finite
// number is NaN throughout.
//
// For y = x * w^T, blocks of x and of the result's gradient are 128 neighbours along the summed dimension,
// and blocks of w are squares of 128 x 128; for the gradient of w, blocks of x are squares as well. Blocks
// are cut from the whole tensor, by rows and columns of the matrix that it is multiplied as; the last blocks
// of a row or column may be smaller, by multiples of 16.
//
// The factors of such an op are the operands it reads whose last or first dimension is summed over by its
// rule. One of them comes in squares: a parameter or, if none is one, operand 0.
#pragma once

#include "prun/kernel.hpp"

namespace prun {

inline constexpr std::int64_t fp8_block = 128, fp8_grain = 16;

// Says which elements of a matrix share a scale: 128 neighbours of a row, of a column, or a square.
enum class Fp8Blocks : std::uint8_t { rows, columns, squares };

// Returns whether the dimensions [from, to) of a tensor, merged to one dimension of a matrix, divide into
// blocks of which none crosses the bounds of a rank's shard.
inline bool comes_in_blocks(const OperandShape& part, const OperandShape& whole, int from, int to) {
  std::int64_t run = 1;
  bool split = false;
  for (int d = to - 1; d >= from; --d) {
    run *= part.dims[d].extent;
    if (part.dims[d].extent == whole.dims[d].extent) continue;
    split = true;
    if (run % fp8_block != 0) return false;
  }
  return split ? run % fp8_block == 0 : run >= fp8_block && run % fp8_grain == 0;
}

// Returns whether a launch of an op multiplies in fp8, by its attributes from number `fp8` on: fp8, and the
// range of the segment's layers that do, from fp8_from to before fp8_until, where 0 as fp8_until means the
// last one included.
inline bool multiplies_in_fp8(const KernelArgs& args, int fp8) {
  const Attr* const of = args.attrs + fp8;
  return of[0].i != 0 && args.layer >= of[1].i && (of[2].i == 0 || args.layer < of[2].i);
}

}  // namespace prun
