// Declares peak_fp8_squares and encode_fp8_part: see kernels/fp8_parts/fp8_parts.cpp. T is float, bf16 or
// f16; codes begin at a multiple of 16 bytes.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Describes a matrix of which a part of a flat range has the elements from `from` on, up to `to`; behind the
// last one are its scales, where a byte counts as an element. Both are multiples of 128; `from` may be less
// than 0, and `to` may lie behind all that is the matrix's.
struct MatrixInPart {
  std::int64_t rows, columns, from, to;
};

// Raises a number for each square. `x` is the part's first element.
template <class T>
void peak_fp8_squares(const T* x, const MatrixInPart& matrix, float* peaks, Stream stream);

// Writes codes and scales into the part, whose first byte `codes` is.
template <class T>
void encode_fp8_part(const T* x, const MatrixInPart& matrix, const float* peaks, std::uint8_t* codes,
                     Stream stream);

}  // namespace prun::cuda
