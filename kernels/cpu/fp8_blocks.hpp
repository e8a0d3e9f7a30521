// Rounds operands of products in fp8 (prun/fp8_blocks.hpp) to what their codes stand for; they are multiplied
// as any others. A number rounded to e4m3, times a power of two, is exact in every type.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/values.hpp"
#include "fp8_scale.hpp"
#include "prun/fp8_blocks.hpp"
#include "prun/workers.hpp"

namespace prun::cpu::PRUN_ISA {

// Says which elements of a tile of 128 x 128 share a scale.
enum class Fp8Blocks { rows, columns, squares };

// Rounds a row-major tile, `width` elements from row to row, into the same place of `to`.
template <Fp8Blocks blocks, class T>
void round_tile_to_fp8(const T* from, T* to, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  using C = Compute<T>;
  const auto group = [](std::int64_t i, std::int64_t j) {
    return blocks == Fp8Blocks::rows ? i : blocks == Fp8Blocks::columns ? j : 0;
  };
  C largest[fp8_block] = {}, beyond[fp8_block] = {};  // are sums that are NaN where a number is not finite
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const C size = std::abs(load(from[i * width + j]));
      const std::int64_t g = group(i, j);
      largest[g] = largest[g] < size ? size : largest[g];
      beyond[g] += size - size;
    }
  C scale[fp8_block], inverse[fp8_block];
  for (std::int64_t g = 0; g < fp8_block; ++g) {
    const std::uint32_t bits = fp8_scale_bits(
        std::bit_cast<std::uint32_t>(static_cast<float>(largest[g] + beyond[g])) & 0x7fffffffu);
    scale[g] = static_cast<C>(std::bit_cast<float>(bits));
    inverse[g] = static_cast<C>(std::bit_cast<float>(fp8_inverse_bits(bits)));
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t g = group(i, j);
      store(to[i * width + j], round_to_e4m3(load(from[i * width + j]) * inverse[g]) * scale[g]);
    }
}

// Rounds a row-major matrix.
template <class T>
void round_to_fp8(Fp8Blocks blocks, const T* from, T* to, std::int64_t rows, std::int64_t columns,
                  const Workers& workers) {
  const std::int64_t across = (columns + fp8_block - 1) / fp8_block,
                     down = (rows + fp8_block - 1) / fp8_block;
  parallel_ranges(workers, across * down, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t row = tile / across * fp8_block, column = tile % across * fp8_block;
      const std::int64_t at = row * columns + column, tall = std::min(fp8_block, rows - row),
                         wide = std::min(fp8_block, columns - column);
      switch (blocks) {
        case Fp8Blocks::rows:
          round_tile_to_fp8<Fp8Blocks::rows>(from + at, to + at, tall, wide, columns);
          break;
        case Fp8Blocks::columns:
          round_tile_to_fp8<Fp8Blocks::columns>(from + at, to + at, tall, wide, columns);
          break;
        case Fp8Blocks::squares:
          round_tile_to_fp8<Fp8Blocks::squares>(from + at, to + at, tall, wide, columns);
          break;
      }
    }
  });
}

}  // namespace prun::cpu::PRUN_ISA
