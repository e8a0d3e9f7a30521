// SPDX-License-Identifier: Apache-2.0
// A value of products in fp8 (prun/fp8_blocks.hpp) as the codes of its squares of 128 x 128, from which a
// weight's gradient is multiplied: what op `encode_fp8_squares` writes, and an op with an attribute `fp8` may
// read as its operand 0 where that attribute is 2. Whether it does, its rule says: the core asks it, and has
// forward keep these instead of the value where every op that reads it in backward takes them. Its attribute
// `in_dims` says how many of the value's last dimensions are a row of the matrix that it is multiplied as.
//
// Of a matrix of so many rows, multiples of 128, and columns, multiples of 16, as lies on a rank: the codes
// of each column, one behind the other; behind these, of each 128 columns or what is left of them, as many
// bytes as there are rows, which are, all together, the scales in fp32: those of 128 columns side by side, as
// many as there are squares, rounded up to a multiple of four. Nobody reads the rest.
#pragma once

#include "prun/fp8_blocks.hpp"

namespace prun {

struct Fp8Squares {
  std::int64_t rows = 0, columns = 0;

  constexpr std::int64_t across() const { return (columns + fp8_block - 1) / fp8_block; }
  // Returns how many scales lie from one group of 128 columns to the next.
  constexpr std::int64_t stride() const { return (rows / fp8_block + 3) / 4 * 4; }
  std::uint8_t* codes(const Tensor& tensor) const { return tensor.as<std::uint8_t>(); }
  float* scales(const Tensor& tensor) const {
    return reinterpret_cast<float*>(tensor.as<std::uint8_t>() + rows * columns);
  }
};

// Returns the codes of a value with so many dimensions in a row; they are absent where the value does not
// come in whole squares.
inline OperandShape fp8_squares_of(const OperandShape& x, int in_dims) {
  const int lead = x.rank - in_dims;
  OperandShape codes;
  if (in_dims < 1 || lead < 1 || !is_float(x.dtype) || x.dims[lead - 1].extent % fp8_block != 0) return codes;
  Fp8Squares squares;
  squares.columns = 1;
  for (int d = lead; d < x.rank; ++d) squares.columns *= x.dims[d].extent;
  if (squares.columns % fp8_grain != 0) return codes;
  codes.present = true;
  codes.dtype = DType::u8;
  codes.rank = lead + 1;
  codes.dims[0] = {x.dims[lead].name, squares.columns + squares.across()};
  for (int d = 0; d < lead; ++d) codes.dims[d + 1] = x.dims[d];
  return codes;
}

}  // namespace prun
