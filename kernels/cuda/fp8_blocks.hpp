// Makes factors of products in fp8 (prun/fp8_blocks.hpp), as cuBLASLt wants them: codes in e4m3 whose rows
// run along the dimension that is summed, and scales in fp32. All extents are multiples of 128; codes and
// scales begin at multiples of 16 bytes. T is float, bf16 or f16, and x row-major.
#pragma once

#include "cuda/launch.hpp"
#include "prun/fp8_blocks.hpp"

namespace prun::cuda {

struct Fp8Factor {
  std::uint8_t* codes;
  float* scales;
};

constexpr std::int64_t fp8_blocks_in(std::int64_t extent) { return (extent + fp8_block - 1) / fp8_block; }

// Returns how many scales a factor of `rows` rows has, each row along the dimension that is summed.
constexpr std::int64_t fp8_row_scales(std::int64_t rows, std::int64_t summed) {
  return rows * fp8_blocks_in(summed);
}
// Returns the distance from one row of squares to the next.
constexpr std::int64_t fp8_square_stride(std::int64_t summed) { return (fp8_blocks_in(summed) + 3) / 4 * 4; }
constexpr std::int64_t fp8_square_scales(std::int64_t rows, std::int64_t summed) {
  return fp8_blocks_in(rows) * fp8_square_stride(summed);
}

// There is a scale for each 128 neighbours of a row; that of block k of row r is at k * rows + r.
template <class T>
void rows_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream);

// Does the same for x transposed, whose rows are columns of x.
template <class T>
void columns_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream);

// Does both at once, with one reading of x.
template <class T>
void rows_and_columns_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& by_rows,
                             const Fp8Factor& by_columns, Stream stream);

// Codes rows of x, and squares of x transposed, with one reading of it.
template <class T>
void rows_and_squares_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& by_rows,
                             const Fp8Factor& by_squares, Stream stream);

// There is a scale for each square; those of neighbouring squares of the factor's row are side by side.
template <class T>
void squares_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, bool transposed, const Fp8Factor& to,
                    Stream stream);

// Writes x in blocks of 128 neighbours of a row as coded.hpp does in e4m3, each with the scale of its square;
// extents are multiples of 128, and codes begin at a multiple of 4 bytes.
template <class T>
void square_rows_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, std::uint8_t* codes,
                        Stream stream);

// Turns such a factor, of x as it is, into that of x transposed; x is [rows, columns].
void turn_fp8_squares(const Fp8Factor& from, std::int64_t rows, std::int64_t columns, const Fp8Factor& to,
                      Stream stream);

}  // namespace prun::cuda
