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

// Holds the scales of a row-major tile of at most 128 x 128, `width` elements from row to row, as bits of
// fp32.
template <Fp8Blocks blocks, class T>
class TileScales {
 public:
  using C = Compute<T>;

  TileScales(const T* from, std::int64_t rows, std::int64_t columns, std::int64_t width) {
    C largest[fp8_block] = {}, beyond[fp8_block] = {};  // are sums that are NaN where a number is not finite
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const C size = std::abs(load(from[i * width + j]));
        const std::int64_t g = group(i, j);
        largest[g] = largest[g] < size ? size : largest[g];
        beyond[g] += size - size;
      }
    for (std::int64_t g = 0; g < fp8_block; ++g) {
      bits_[g] = fp8_scale_bits(std::bit_cast<std::uint32_t>(static_cast<float>(largest[g] + beyond[g])) &
                                0x7fffffffu);
      scale_[g] = static_cast<C>(std::bit_cast<float>(bits_[g]));
      inverse_[g] = static_cast<C>(std::bit_cast<float>(fp8_inverse_bits(bits_[g])));
    }
  }

  std::uint32_t bits(std::int64_t i, std::int64_t j) const { return bits_[group(i, j)]; }
  C scale(std::int64_t i, std::int64_t j) const { return scale_[group(i, j)]; }
  C inverse(std::int64_t i, std::int64_t j) const { return inverse_[group(i, j)]; }

 private:
  static std::int64_t group(std::int64_t i, std::int64_t j) {
    return blocks == Fp8Blocks::rows ? i : blocks == Fp8Blocks::columns ? j : 0;
  }

  std::uint32_t bits_[fp8_block];
  C scale_[fp8_block], inverse_[fp8_block];
};

// Rounds a tile into the same place of `to`.
template <Fp8Blocks blocks, class T>
void round_tile_to_fp8(const T* from, T* to, std::int64_t rows, std::int64_t columns, std::int64_t width) {
  const TileScales<blocks, T> scales(from, rows, columns, width);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      store(to[i * width + j],
            round_to_e4m3(load(from[i * width + j]) * scales.inverse(i, j)) * scales.scale(i, j));
}

// Calls body(first element, rows, columns) for each tile of a row-major matrix, on any thread.
template <class T, class Body>
void each_tile(const T* from, std::int64_t rows, std::int64_t columns, const Workers& workers, Body body) {
  const std::int64_t across = (columns + fp8_block - 1) / fp8_block,
                     down = (rows + fp8_block - 1) / fp8_block;
  parallel_ranges(workers, across * down, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t row = tile / across * fp8_block, column = tile % across * fp8_block;
      body(from + row * columns + column, std::min(fp8_block, rows - row),
           std::min(fp8_block, columns - column));
    }
  });
}

// Calls body.template operator()<blocks>().
template <class Body>
void with_blocks(Fp8Blocks blocks, Body body) {
  switch (blocks) {
    case Fp8Blocks::rows: body.template operator()<Fp8Blocks::rows>(); break;
    case Fp8Blocks::columns: body.template operator()<Fp8Blocks::columns>(); break;
    case Fp8Blocks::squares: body.template operator()<Fp8Blocks::squares>(); break;
  }
}

// Rounds a row-major matrix.
template <class T>
void round_to_fp8(Fp8Blocks blocks, const T* from, T* to, std::int64_t rows, std::int64_t columns,
                  const Workers& workers) {
  with_blocks(blocks, [&]<Fp8Blocks of>() {
    each_tile(from, rows, columns, workers, [&](const T* tile, std::int64_t tall, std::int64_t wide) {
      round_tile_to_fp8<of>(tile, to + (tile - from), tall, wide, columns);
    });
  });
}

}  // namespace prun::cpu::PRUN_ISA
