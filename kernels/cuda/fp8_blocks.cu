#include "cuda/fp8_blocks.hpp"

#include <cuda_fp8.h>

#include "cuda/device.cuh"
#include "fp8_scale.hpp"

namespace prun::cuda {
namespace {

// A block of threads takes a tile of 128 x 128, a warp 16 rows of it, a lane four neighbours of each row.
inline constexpr int threads = 256, warps = threads / 32, tall = 128 / warps, each = 4;
static_assert(32 * each == fp8_block);

enum class Blocks { rows, columns, squares };

struct LargerBits {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a < b ? b : a; }
};

// Of a magnitude. Numbers that are not finite have larger ones than all that are.
__device__ __forceinline__ std::uint32_t size_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// What a lane has of its tile.
template <class T>
struct Part {
  Pack<T, each> row[tall];

  template <bool aligned>
  __device__ void load(const T* from, std::int64_t stride) {
#pragma unroll
    for (int i = 0; i < tall; ++i) {
      if constexpr (aligned) {
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

// Four codes, the first in the lowest bits.
__device__ __forceinline__ std::uint32_t codes_of(const Lanes<float, each>& x, const float (&inverse)[each]) {
  const std::uint32_t low =
      __nv_cvt_float2_to_fp8x2(make_float2(x[0] * inverse[0], x[1] * inverse[1]), __NV_SATFINITE, __NV_E4M3);
  const std::uint32_t high =
      __nv_cvt_float2_to_fp8x2(make_float2(x[2] * inverse[2], x[3] * inverse[3]), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

// The scales, as bits: of each of a lane's rows, or of each of its columns.
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

// Where 16 codes of a column, those of a warp, lie among the columns of the tile, so that neither those that
// write nor those that read meet at a bank.
__device__ __forceinline__ int place_of(int column, int sixteenth) {
  return column * warps + (sixteenth ^ (column / each % warps));
}

// A lane's columns, of 16 rows each, as columns of the tile in shared memory.
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

// `codes` is where the tile's first column begins, as a row of `rows` codes.
__device__ __forceinline__ void write_columns(const uint4* tile, std::uint8_t* codes, std::int64_t rows) {
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < 128 * warps; at += threads) {
    const int column = at / warps, sixteenth = at % warps;
    *reinterpret_cast<uint4*>(codes + column * rows + sixteenth * 16) = tile[place_of(column, sixteenth)];
  }
}

template <Blocks blocks, bool transposed, bool aligned, class T>
__global__ __launch_bounds__(threads) void round_kernel(const T* x, std::int64_t rows, std::int64_t columns,
                                                        std::uint8_t* codes, float* scales) {
  __shared__ std::uint32_t shared[warps * 128];
  __shared__ uint4 tile[128 * warps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t across = blockIdx.x, down = blockIdx.y;
  const std::int64_t row = down * fp8_block + warp * tall, column = across * fp8_block + lane * each;

  Part<T> part;
  part.template load<aligned>(x + row * columns + column, columns);
  std::uint32_t bits[blocks == Blocks::rows ? tall : each];
  find_scales<blocks>(part, bits, shared);

  std::uint32_t words[tall];
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    float inverse[each];
#pragma unroll
    for (int l = 0; l < each; ++l)
      inverse[l] = __uint_as_float(fp8_inverse_bits(bits[blocks == Blocks::rows ? i : l]));
    words[i] = codes_of(part.at(i), inverse);
  }
  if constexpr (transposed) {
    keep_columns(words, tile);
    __syncthreads();
    write_columns(tile, codes + across * fp8_block * rows + down * fp8_block, rows);
  } else {
#pragma unroll
    for (int i = 0; i < tall; ++i)
      *reinterpret_cast<std::uint32_t*>(codes + (row + i) * columns + column) = words[i];
  }

  if constexpr (blocks == Blocks::rows) {
#pragma unroll
    for (int i = 0; i < tall; ++i)
      if (lane == i) scales[across * rows + row + i] = __uint_as_float(bits[i]);
  } else if constexpr (blocks == Blocks::columns) {
    if (warp == 0)
#pragma unroll
      for (int l = 0; l < each; ++l) scales[down * columns + column + l] = __uint_as_float(bits[l]);
  } else if (threadIdx.x == 0) {
    const std::int64_t at =
        transposed ? across * fp8_square_stride(rows) + down : down * fp8_square_stride(columns) + across;
    scales[at] = __uint_as_float(bits[0]);
  }
}

template <Blocks blocks, bool transposed, class T>
void launch(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  PRUN_CHECK(rows % fp8_block == 0 && columns % fp8_block == 0, rows, " x ", columns);
  PRUN_CHECK(cuda::aligned({to.codes, to.scales}), "codes or scales that are not aligned");
  if (rows == 0 || columns == 0) return;
  const dim3 grid(grid_of(columns / fp8_block), grid_of(rows / fp8_block));
  if (cuda::aligned({x})) {
    round_kernel<blocks, transposed, true, T>
        <<<grid, threads, 0, stream>>>(x, rows, columns, to.codes, to.scales);
  } else {
    round_kernel<blocks, transposed, false, T>
        <<<grid, threads, 0, stream>>>(x, rows, columns, to.codes, to.scales);
  }
  check_launch("fp8_blocks");
}

}  // namespace

template <class T>
void rows_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  launch<Blocks::rows, false>(x, rows, columns, to, stream);
}

template <class T>
void columns_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  launch<Blocks::columns, true>(x, rows, columns, to, stream);
}

template <class T>
void squares_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, bool transposed, const Fp8Factor& to,
                    Stream stream) {
  if (transposed)
    launch<Blocks::squares, true>(x, rows, columns, to, stream);
  else
    launch<Blocks::squares, false>(x, rows, columns, to, stream);
}

#define PRUN_FP8_BLOCKS(T)                                                                         \
  template void rows_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&, Stream);    \
  template void columns_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&, Stream); \
  template void squares_to_fp8<T>(const T*, std::int64_t, std::int64_t, bool, const Fp8Factor&, Stream)
PRUN_FP8_BLOCKS(float);
PRUN_FP8_BLOCKS(bf16);
PRUN_FP8_BLOCKS(f16);

}  // namespace prun::cuda
