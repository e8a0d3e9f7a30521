// A block of threads counts a tile of 128 x 128, as others make codes of it, and adds what it found. Counts
// are whole numbers, so that their order has no effect.
#include "fp8_counts/cuda.hpp"

#include "cuda/fp8_tile.cuh"

namespace prun::cuda {

using namespace fp8;

namespace {

constexpr std::uint32_t scale_of_nan = 0x7fc00000u;

// Holds three numbers that threads of a block find, and folds them.
struct Found {
  std::uint32_t of[3] = {0, 0, 0};

  template <class Combine>
  __device__ void fold(Combine combine, std::uint32_t (&scratch)[3][32]) {
#pragma unroll
    for (int k = 0; k < 3; ++k) of[k] = block_fold(of[k], 0u, combine, scratch[k]);
  }
};

// Calls body(magnitude's bits, code, scale's bits) for a lane's numbers that are not zero, in blocks that are
// finite.
template <Blocks blocks, class T, class Body>
__device__ __forceinline__ void each_number(const Part<T>& part, std::uint32_t* shared, Body body) {
  std::uint32_t bits[blocks == Blocks::rows ? tall : each], words[tall];
  find_scales<blocks>(part, bits, shared);
  find_codes<blocks>(part, bits, words);
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    const Lanes<float, each> x = part.at(i);
#pragma unroll
    for (int l = 0; l < each; ++l) {
      const std::uint32_t size = size_bits(x[l]), scale = bits[blocks == Blocks::rows ? i : l];
      if (size != 0 && scale != scale_of_nan) body(size, words[i] >> (8 * l) & 0x7fu, scale);
    }
  }
}

template <Blocks blocks, bool aligned, class T>
__device__ __forceinline__ Part<T> part_of(const T* x, const Tile& t) {
  Part<T> part;
  part.template load<aligned>(x + t.row() * t.columns + t.column(), t.columns, t.there());
  return part;
}

template <Blocks blocks, bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void count_codes_kernel(const T* x, std::int64_t rows,
                                                                  std::int64_t columns, const double* on,
                                                                  double* counts) {
  __shared__ std::uint32_t shared[warps * 128], scratch[3][32];
  if (*on == 0) return;
  const Part<T> part = part_of<blocks, aligned>(x, Tile{rows, columns});
  Found found;
  each_number<blocks>(part, shared, [&](std::uint32_t, std::uint32_t code, std::uint32_t) {
    ++found.of[0];
    found.of[1] += code == 0;
    found.of[2] += code > 0 && code < 8;
  });
  found.fold(Add(), scratch);
  if (threadIdx.x == 0 && found.of[0] > 0)
    for (int k = 0; k < 3; ++k) atomicAdd(counts + k, static_cast<double>(found.of[k]));
}

// Numbers that are not below 0 are ordered as their bits are.
__device__ __forceinline__ void raise_to(double* peak, double x) {
  atomicMax(reinterpret_cast<unsigned long long*>(peak),
            static_cast<unsigned long long>(__double_as_longlong(x)));
}

template <Blocks blocks, bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void peak_scales_kernel(const T* x, std::int64_t rows,
                                                                  std::int64_t columns, const double* on,
                                                                  double* peaks) {
  __shared__ std::uint32_t shared[warps * 128], scratch[3][32];
  if (*on == 0) return;
  const Part<T> part = part_of<blocks, aligned>(x, Tile{rows, columns});
  Found found;
  each_number<blocks>(part, shared, [&](std::uint32_t size, std::uint32_t, std::uint32_t scale) {
    found.of[0] = LargerBits()(found.of[0], size);
    found.of[1] = LargerBits()(found.of[1], scale >> 23);
    found.of[2] = LargerBits()(found.of[2], 255u - (scale >> 23));
  });
  found.fold(LargerBits(), scratch);
  if (threadIdx.x != 0 || found.of[0] == 0) return;
  raise_to(peaks, __uint_as_float(found.of[0]));
  for (int k = 1; k < 3; ++k) raise_to(peaks + k, found.of[k]);
}

// Calls launch.template operator()<blocks, aligned>().
template <class Launch>
void with_blocks(Fp8Blocks blocks, bool aligned, Launch launch) {
  const auto of = [&]<Blocks one>() {
    if (aligned)
      launch.template operator()<one, true>();
    else
      launch.template operator()<one, false>();
  };
  switch (blocks) {
    case Fp8Blocks::rows: of.template operator()<Blocks::rows>(); break;
    case Fp8Blocks::columns: of.template operator()<Blocks::columns>(); break;
    case Fp8Blocks::squares: of.template operator()<Blocks::squares>(); break;
  }
}

}  // namespace

template <class T>
void count_fp8_codes(Fp8Blocks blocks, const T* x, std::int64_t rows, std::int64_t columns, const double* on,
                     double* counts, Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {});
  if (rows == 0 || columns == 0) return;
  with_blocks(blocks, cuda::aligned({x}), [&]<Blocks of, bool aligned>() {
    count_codes_kernel<of, aligned, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, on, counts);
  });
  check_launch("count_fp8_codes");
}

template <class T>
void peak_fp8_scales(Fp8Blocks blocks, const T* x, std::int64_t rows, std::int64_t columns, const double* on,
                     double* peaks, Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {});
  if (rows == 0 || columns == 0) return;
  with_blocks(blocks, cuda::aligned({x}), [&]<Blocks of, bool aligned>() {
    peak_scales_kernel<of, aligned, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, on, peaks);
  });
  check_launch("peak_fp8_scales");
}

#define PRUN_FP8_COUNTS(T)                                                                                  \
  template void count_fp8_codes<T>(Fp8Blocks, const T*, std::int64_t, std::int64_t, const double*, double*, \
                                   Stream);                                                                 \
  template void peak_fp8_scales<T>(Fp8Blocks, const T*, std::int64_t, std::int64_t, const double*, double*, \
                                   Stream)
PRUN_FP8_COUNTS(float);
PRUN_FP8_COUNTS(bf16);
PRUN_FP8_COUNTS(f16);

}  // namespace prun::cuda
