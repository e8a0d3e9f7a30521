// SPDX-License-Identifier: Apache-2.0
// A factor of fp8 products in quantized form, in squares of 128 x 128 (prun/fp8_blocks.hpp): op
// `encode_fp8_squares` writes it, and an op whose attribute `fp8` is 2 reads it in place of that
// factor. An op's rule says whether it can, and the core asks it: if every op that reads a value in
// backward can, forward saves the quantized form; weights can be quantized once a step. The attribute
// `in_dims` says how many of the factor's last dimensions are a row of the matrix that it is multiplied
// as.
//
// A rank's matrix has rows and columns in multiples of 16. The codes of its columns come first, one column
// after the other. After them each group of 128 columns (the last may be smaller) has as many bytes as
// there are rows. Together these bytes hold the scales in fp32: for each group one per square, their
// number rounded up to a multiple of four. The rest is unused. Codes by rows are those of the transposed
// matrix.
#pragma once

#include "prun/fp8_blocks.hpp"

namespace prun {

struct Fp8Squares {
  std::int64_t rows = 0, columns = 0;

  constexpr std::int64_t across() const { return (columns + fp8_block - 1) / fp8_block; }
  constexpr std::int64_t down() const { return (rows + fp8_block - 1) / fp8_block; }
  constexpr std::int64_t bytes() const { return rows * (columns + across()); }
  // Returns the distance in scales from one group of 128 columns to the next.
  constexpr std::int64_t stride() const { return ((rows + fp8_block - 1) / fp8_block + 3) / 4 * 4; }
  std::uint8_t* codes(const Tensor& tensor) const { return tensor.as<std::uint8_t>(); }
  float* scales(const Tensor& tensor) const {
    return reinterpret_cast<float*>(tensor.as<std::uint8_t>() + rows * columns);
  }
};

// Returns the codes of a factor with so many dimensions in a row, as they lie by columns or by rows of the
// matrix; they are absent where it does not come in blocks of 16 at least. First comes what a column, or a
// row, is: by rows the dimensions that a row is, of which the last one in whole blocks has the scales too,
// else one for all of them, by the first one's name. Behind that are the dimensions that the codes of one run
// along.
inline OperandShape fp8_squares_of(const OperandShape& x, int in_dims, bool by_rows = false) {
  const int lead = x.rank - in_dims;
  OperandShape codes;
  if (in_dims < 1 || lead < 1 || !is_float(x.dtype)) return codes;
  const int first = by_rows ? 0 : lead, behind = by_rows ? lead : x.rank, along = by_rows ? lead : 0,
            end = by_rows ? x.rank : lead;
  Fp8Squares squares{1, 1};
  for (int d = first; d < behind; ++d) squares.columns *= x.dims[d].extent;
  for (int d = along; d < end; ++d) squares.rows *= x.dims[d].extent;
  if (squares.columns % fp8_grain != 0 || squares.rows % fp8_grain != 0 || squares.rows < fp8_block)
    return codes;
  codes.present = true;
  codes.dtype = DType::u8;
  int whole = by_rows ? behind - 1 : -1;
  while (whole >= 0 && x.dims[whole].extent % fp8_block != 0) --whole;
  if (whole < 0) codes.dims[codes.rank++] = {x.dims[first].name, squares.columns + squares.across()};
  for (int d = first; whole >= 0 && d < behind; ++d) {
    codes.dims[codes.rank] = x.dims[d];
    if (d == whole) codes.dims[codes.rank].extent += x.dims[d].extent / fp8_block;
    ++codes.rank;
  }
  for (int d = along; d < end; ++d) codes.dims[codes.rank++] = x.dims[d];
  return codes;
}

// Returns whether codes have a dimension of that name.
inline bool has_dim(const OperandShape& codes, const Name& name) {
  for (int d = 0; d < codes.rank; ++d)
    if (codes.dims[d].name == name) return true;
  return false;
}

}  // namespace prun
