// Turns values into codes of their squares in fp8 (prun/fp8_squares.hpp), and back: the result is what
// round_to_fp8() would have left of them, to the last bit.
#pragma once

#include <cstring>

#include "cpu/fp8_blocks.hpp"
#include "prun/fp8_squares.hpp"

namespace prun::cpu::PRUN_ISA {

inline constexpr int e4m3_nan = 0x7f;

// Calls body(square's index, row, column, rows, columns) for each square.
template <class Body>
void each_square(const Fp8Squares& all, const Workers& workers, Body body) {
  const std::int64_t down = (all.rows + fp8_block - 1) / fp8_block;
  parallel_ranges(workers, all.across() * down, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i / down * fp8_block, row = i % down * fp8_block;
      body(i / down * all.stride() + i % down, row, column, std::min(fp8_block, all.rows - row),
           std::min(fp8_block, all.columns - column));
    }
  });
}

// Says how the numbers lie of a matrix whose codes lie by columns: row-major, or column-major where these are
// codes by rows of the matrix transposed.
struct Steps {
  std::int64_t row, column;
  Steps(const Fp8Squares& all, bool by_rows)
      : row(by_rows ? 1 : all.columns), column(by_rows ? all.rows : 1) {}
};

// Writes all bytes, the gaps between the scales included.
template <class T>
void encode_squares(const T* x, const Fp8Squares& all, bool by_rows, const Tensor& to,
                    const Workers& workers) {
  std::uint8_t* const codes = all.codes(to);
  float* const scales = all.scales(to);
  const Steps step(all, by_rows);
  std::memset(scales, 0, static_cast<std::size_t>(all.across() * all.rows));
  each_square(
      all, workers,
      [&](std::int64_t square, std::int64_t row, std::int64_t column, std::int64_t tall, std::int64_t wide) {
        const T* const from = x + row * step.row + column * step.column;
        using C = Compute<T>;
        C largest = 0, beyond = 0;
        for (std::int64_t i = 0; i < tall; ++i)
          for (std::int64_t j = 0; j < wide; ++j) {
            const C size = std::abs(load(from[i * step.row + j * step.column]));
            largest = largest < size ? size : largest;
            beyond += size - size;
          }
        const std::uint32_t bits =
            fp8_scale_bits(std::bit_cast<std::uint32_t>(static_cast<float>(largest + beyond)) & 0x7fffffffu);
        const float scale = std::bit_cast<float>(bits);
        const C inverse = static_cast<C>(std::bit_cast<float>(fp8_inverse_bits(bits)));
        scales[square] = scale;
        for (std::int64_t j = 0; j < wide; ++j)
          for (std::int64_t i = 0; i < tall; ++i) {
            const auto number =
                static_cast<float>(round_to_e4m3(load(from[i * step.row + j * step.column]) * inverse));
            codes[(column + j) * all.rows + row + i] =
                static_cast<std::uint8_t>(scale == scale ? e4m3_code(number) : e4m3_nan);
          }
      });
}

// Writes the codes of the matrix transposed, all bytes of them.
inline void turn_squares(const Fp8Squares& all, const Tensor& from, const Tensor& to,
                         const Workers& workers) {
  const Fp8Squares turned{all.columns, all.rows};
  const std::uint8_t* const codes = all.codes(from);
  const float* const scales = all.scales(from);
  std::memset(turned.scales(to), 0, static_cast<std::size_t>(turned.across() * turned.rows));
  each_square(
      all, workers,
      [&](std::int64_t square, std::int64_t row, std::int64_t column, std::int64_t tall, std::int64_t wide) {
        turned.scales(to)[row / fp8_block * turned.stride() + column / fp8_block] = scales[square];
        for (std::int64_t i = 0; i < tall; ++i)
          for (std::int64_t j = 0; j < wide; ++j)
            turned.codes(to)[(row + i) * all.columns + column + j] = codes[(column + j) * all.rows + row + i];
      });
}

// Writes the numbers that the codes stand for.
template <class T>
void decode_squares(const Fp8Squares& all, bool by_rows, const Tensor& from, T* to, const Workers& workers) {
  const std::uint8_t* const codes = all.codes(from);
  const float* const scales = all.scales(from);
  const Steps step(all, by_rows);
  each_square(
      all, workers,
      [&](std::int64_t square, std::int64_t row, std::int64_t column, std::int64_t tall, std::int64_t wide) {
        using C = Compute<T>;
        const auto scale = static_cast<C>(scales[square]);
        for (std::int64_t i = 0; i < tall; ++i)
          for (std::int64_t j = 0; j < wide; ++j)
            store(to[(row + i) * step.row + (column + j) * step.column],
                  static_cast<C>(e4m3_number(codes[(column + j) * all.rows + row + i])) * scale);
      });
}

}  // namespace prun::cpu::PRUN_ISA
