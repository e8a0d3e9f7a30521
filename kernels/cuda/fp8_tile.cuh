// Turns tiles of 128 x 128 elements into codes in fp8 with their scales (cuda/fp8_blocks.hpp), as they are
// and transposed.
#pragma once

#include <cuda_fp8.h>

#include "cuda/device.cuh"
#include "cuda/fp8_blocks.hpp"
#include "fp8_scale.hpp"

namespace prun::cuda::fp8 {

// A block of threads takes a tile of 128 x 128, a warp 16 rows of it, a lane four neighbours of each row.
// Where a tile reaches beyond the matrix, whole warps and lanes have nothing.
inline constexpr int fp8_threads = 256, warps = fp8_threads / 32, tall = 128 / warps, each = 4;
static_assert(32 * each == fp8_block && tall == fp8_grain);

enum class Blocks { rows, columns, squares };

struct LargerBits {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a < b ? b : a; }
};

// Returns the bits of a magnitude. Numbers that are not finite have larger ones than all that are.
__device__ __forceinline__ std::uint32_t size_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Holds a lane's part of its tile.
template <class T>
struct Part {
  Pack<T, each> row[tall];

  template <bool aligned>
  __device__ void load(const T* from, std::int64_t stride, bool there) {
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      if (!there) {
        row[i] = {};
      } else if constexpr (aligned) {
        row[i] = load_pack<each>(from + i * stride);
      } else {
        Lanes<float, each> x;
#pragma unroll
        for (int l = 0; l < each; ++l) x[l] = cuda::load(from + i * stride + l);
        row[i] = pack<T>(x);
      }
    }
  }
  __device__ Lanes<float, each> at(int i) const { return unpack(row[i]); }
};

// Returns four codes, the first in the lowest bits.
__device__ __forceinline__ std::uint32_t codes_of(const Lanes<float, each>& x, const float (&inverse)[each]) {
  const std::uint32_t low =
      __nv_cvt_float2_to_fp8x2(make_float2(x[0] * inverse[0], x[1] * inverse[1]), __NV_SATFINITE, __NV_E4M3);
  const std::uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(x[2] * inverse[2], x[3] * inverse[3]), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

// Returns the bits of the largest magnitude of a tile, to all threads.
template <class T>
__device__ __forceinline__ std::uint32_t square_peak(const Part<T>& part, std::uint32_t* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    const Lanes<float, each> x = part.at(i);
#pragma unroll
    for (int l = 0; l < each; ++l) largest = LargerBits()(largest, size_bits(x[l]));
  }
  largest = warp_fold(largest, LargerBits());
  if (lane == 0) shared[warp] = largest;
  __syncthreads();
  return warp_fold(lane < warps ? shared[lane] : 0u, LargerBits());
}

// Finds the scales, as bits, of each of a lane's rows, or of each of its columns.
template <Blocks blocks, class T>
__device__ void find_scales(const Part<T>& part,
                            std::uint32_t (&scales)[blocks == Blocks::rows ? tall : each],
                            std::uint32_t* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if constexpr (blocks == Blocks::rows) {
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      const Lanes<float, each> x = part.at(i);
      std::uint32_t largest = 0;
#pragma unroll
      for (int l = 0; l < each; ++l) largest = LargerBits()(largest, size_bits(x[l]));
      scales[i] = fp8_scale_bits(warp_fold(largest, LargerBits()));
    }
  } else {
    std::uint32_t largest[each] = {};
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      const Lanes<float, each> x = part.at(i);
#pragma unroll
      for (int l = 0; l < each; ++l) largest[l] = LargerBits()(largest[l], size_bits(x[l]));
    }
    if constexpr (blocks == Blocks::squares) {
      std::uint32_t all =
          LargerBits()(LargerBits()(largest[0], largest[1]), LargerBits()(largest[2], largest[3]));
      all = warp_fold(all, LargerBits());
      if (lane == 0) shared[warp] = all;
      __syncthreads();
      all = warp_fold(lane < warps ? shared[lane] : 0u, LargerBits());
#pragma unroll
      for (int l = 0; l < each; ++l) scales[l] = fp8_scale_bits(all);
    } else {
#pragma unroll
      for (int l = 0; l < each; ++l) shared[warp * 128 + lane * each + l] = largest[l];
      __syncthreads();
#pragma unroll
      for (int l = 0; l < each; ++l) {
        std::uint32_t all = 0;
        for (int w = 0; w < warps; ++w) all = LargerBits()(all, shared[w * 128 + lane * each + l]);
        scales[l] = fp8_scale_bits(all);
      }
    }
  }
}

// Returns where 16 codes of a column, those of a warp, are among the columns of the tile, so that neither
// writers nor readers meet at a bank.
__device__ __forceinline__ int place_of(int column, int sixteenth) {
  return column * warps + (sixteenth ^ (column / each % warps));
}

// Keeps a lane's columns, of 16 rows each, as columns of the tile in shared memory.
__device__ __forceinline__ void keep_columns(const std::uint32_t (&rows)[tall], uint4* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int l = 0; l < each; ++l) {
    std::uint32_t four[4];
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      four[f] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) four[f] |= (rows[4 * f + i] >> (8 * l) & 0xffu) << (8 * i);
    }
    tile[place_of(lane * each + l, warp)] = make_uint4(four[0], four[1], four[2], four[3]);
  }
}

// Names a tile's place in x [rows, columns], and a lane's in it.
struct Tile {
  std::int64_t rows, columns, across = blockIdx.x, down = blockIdx.y;
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;

  __device__ std::int64_t row() const { return down * fp8_block + warp * tall; }
  __device__ std::int64_t column() const { return across * fp8_block + lane * each; }
  __device__ bool there() const { return row() < rows && column() < columns; }
};

template <Blocks blocks, class T>
__device__ __forceinline__ void find_codes(const Part<T>& part,
                                           const std::uint32_t (&bits)[blocks == Blocks::rows ? tall : each],
                                           std::uint32_t (&words)[tall]) {
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    float inverse[each];
#pragma unroll
    for (int l = 0; l < each; ++l)
      inverse[l] = __uint_as_float(fp8_inverse_bits(bits[blocks == Blocks::rows ? i : l]));
    words[i] = codes_of(part.at(i), inverse);
  }
}

__device__ __forceinline__ void write_rows(const Tile& t, const std::uint32_t (&words)[tall],
                                           std::uint8_t* codes) {
  if (!t.there()) return;
#pragma unroll
  for (int i = 0; i < tall; ++i)
    *reinterpret_cast<std::uint32_t*>(codes + (t.row() + i) * t.columns + t.column()) = words[i];
}

__device__ __forceinline__ void write_transposed(const Tile& t, const std::uint32_t (&words)[tall],
                                                 uint4* shared, std::uint8_t* codes) {
  keep_columns(words, shared);
  __syncthreads();
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < 128 * warps; at += fp8_threads) {
    const int column = at / warps, sixteenth = at % warps;
    const std::int64_t to = t.across * fp8_block + column, from = t.down * fp8_block + sixteenth * tall;
    if (to < t.columns && from < t.rows)
      *reinterpret_cast<uint4*>(codes + to * t.rows + from) = shared[place_of(column, sixteenth)];
  }
}

template <Blocks blocks, bool transposed>
__device__ __forceinline__ void write_scales(
    const Tile& t, const std::uint32_t (&bits)[blocks == Blocks::rows ? tall : each], float* scales) {
  if constexpr (blocks == Blocks::rows) {
#pragma unroll
    for (int i = 0; i < tall; ++i)
      if (t.lane == i && t.row() < t.rows) scales[t.across * t.rows + t.row() + i] = __uint_as_float(bits[i]);
  } else if constexpr (blocks == Blocks::columns) {
    if (t.warp == 0 && t.column() < t.columns)
#pragma unroll
      for (int l = 0; l < each; ++l) scales[t.down * t.columns + t.column() + l] = __uint_as_float(bits[l]);
  } else if (threadIdx.x == 0) {
    const std::int64_t at = transposed ? t.across * fp8_square_stride(t.rows) + t.down
                                       : t.down * fp8_square_stride(t.columns) + t.across;
    scales[at] = __uint_as_float(bits[0]);
  }
}

// Writes both of a gradient's factors. `shared` and `tile` may still be in use by what the threads did
// before.
template <class T>
__device__ __forceinline__ void write_both(const Tile& t, const Part<T>& part, const Fp8Factor& by_rows,
                                           const Fp8Factor& by_columns, std::uint32_t* shared, uint4* tile) {
  std::uint32_t of_rows[tall], of_columns[each], words[tall];
  find_scales<Blocks::rows>(part, of_rows, shared);
  find_codes<Blocks::rows>(part, of_rows, words);
  write_rows(t, words, by_rows.codes);
  write_scales<Blocks::rows, false>(t, of_rows, by_rows.scales);
  find_scales<Blocks::columns>(part, of_columns, shared);
  find_codes<Blocks::columns>(part, of_columns, words);
  write_transposed(t, words, tile, by_columns.codes);
  write_scales<Blocks::columns, true>(t, of_columns, by_columns.scales);
}

// Writes a value's rows, and the squares of it transposed, which a weight's gradient is multiplied from.
template <class T>
__device__ __forceinline__ void write_rows_and_squares(const Tile& t, const Part<T>& part,
                                                       const Fp8Factor& by_rows, const Fp8Factor& by_squares,
                                                       std::uint32_t* shared, uint4* tile) {
  std::uint32_t of_rows[tall], of_squares[each], words[tall];
  find_scales<Blocks::rows>(part, of_rows, shared);
  find_codes<Blocks::rows>(part, of_rows, words);
  write_rows(t, words, by_rows.codes);
  write_scales<Blocks::rows, false>(t, of_rows, by_rows.scales);
  find_scales<Blocks::squares>(part, of_squares, shared);
  find_codes<Blocks::squares>(part, of_squares, words);
  write_transposed(t, words, tile, by_squares.codes);
  write_scales<Blocks::squares, true>(t, of_squares, by_squares.scales);
}

inline dim3 tiles_of(std::int64_t rows, std::int64_t columns, std::initializer_list<Fp8Factor> factors) {
  PRUN_CHECK(rows % fp8_grain == 0 && columns % fp8_grain == 0, rows, " x ", columns);
  for (const Fp8Factor& to : factors)
    PRUN_CHECK(cuda::aligned({to.codes, to.scales}), "codes or scales that are not aligned");
  return dim3(grid_of(fp8_blocks_in(columns)), grid_of(fp8_blocks_in(rows)));
}

}  // namespace prun::cuda::fp8
