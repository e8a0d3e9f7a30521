// SPDX-License-Identifier: Apache-2.0
// Products in fp8, of operands that stay in the type they are in: an op that is told so rounds them to e4m3
// (3 digits behind the point, at most 448) in blocks with a scale each, and multiplies what they then stand
// for; sums and results are as without. A scale is a power of two, the smallest by which the block's largest
// magnitude is at most 448, so that what is rounded once stays as it is. Rounding is to nearest, ties to
// even. A block that has a number which is not finite is NaN throughout.
//
// Of y = x * w^T, blocks of x and of a result's gradient are 128 neighbours along what is summed, those of a
// weight squares of 128 x 128; where the weight's gradient is computed, those of x are squares as well. A
// tensor is cut as a whole, by rows and columns of the matrix that it is multiplied as; the last blocks of a
// row or column may be smaller, by multiples of 16.
//
// The factors of an op that multiplies so are the operands it reads that have a dimension which its rule sums
// over, at the end or in front. One of them comes in squares: a parameter or, where none is one, operand 0.
#pragma once

#include "prun/kernel.hpp"

namespace prun {

inline constexpr std::int64_t fp8_block = 128, fp8_grain = 16;

// Says which elements of a matrix share a scale: 128 neighbours of a row, of a column, or a square.
enum class Fp8Blocks : std::uint8_t { rows, columns, squares };

// Says whether the dimensions [from, to) of a tensor, taken as one dimension of a matrix, come in blocks, of
// which none crosses the bounds of a rank's part.
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

// Says whether a launch of an op multiplies in fp8, by its attributes from number `fp8` on: fp8, and of the
// layers of the segment the first one that does, fp8_from, and the first one behind those that do, fp8_until,
// where that is not 0.
inline bool multiplies_in_fp8(const KernelArgs& args, int fp8) {
  const Attr* const of = args.attrs + fp8;
  return of[0].i != 0 && args.layer >= of[1].i && (of[2].i == 0 || args.layer < of[2].i);
}

}  // namespace prun
