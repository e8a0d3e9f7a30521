// The language of kernels/cuda for the host's compiler: what tests/simt/machine.hpp does for kernels, under
// CUDA's names.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/simt/machine.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static  // blocks run one after the other

#define threadIdx (::prun::simt::thread_index())
#define blockIdx (::prun::simt::block_index())
#define blockDim (::prun::simt::block_dim())
#define gridDim (::prun::simt::grid_dim())

struct uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
inline uint2 make_uint2(std::uint32_t x, std::uint32_t y) { return {x, y}; }
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) {
  return {x, y, z, w};
}

using std::isfinite;
using std::max;
using std::min;

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  prun::simt::barrier(where);
}

// Of a whole warp, whatever the mask.
template <class T>
T __shfl_xor_sync(unsigned, T value, int distance,
                  std::source_location where = std::source_location::current()) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::bit_cast<T>(
      static_cast<Bits>(prun::simt::exchange(std::bit_cast<Bits>(value), distance, where)));
}

// All lanes are there at an exchange, and go on from it.
inline void __syncwarp(std::source_location where = std::source_location::current()) {
  prun::simt::exchange(std::uint32_t{0}, 1, where);
}

inline unsigned __ballot_sync(unsigned, bool set,
                              std::source_location where = std::source_location::current()) {
  unsigned all = 0;
  prun::simt::Lanes lanes = prun::simt::bring(set, where);
  for (int lane = 0; lane < prun::simt::warp; ++lane) all |= static_cast<unsigned>(lanes[lane] != 0) << lane;
  return all;
}
inline std::uint32_t __shfl_sync(unsigned, std::uint32_t value, int lane,
                                 std::source_location where = std::source_location::current()) {
  return static_cast<std::uint32_t>(prun::simt::bring(value, where)[lane]);
}
inline int __shfl_sync(unsigned, int value, int lane,
                       std::source_location where = std::source_location::current()) {
  return static_cast<int>(prun::simt::bring(static_cast<std::uint32_t>(value), where)[lane]);
}
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline double atomicAdd(double* to, double value) { return prun::simt::add_atomically(to, value); }
inline unsigned long long atomicMax(unsigned long long* to, unsigned long long value) {
  return prun::simt::raise_atomically(to, value);
}

inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 |
                               static_cast<std::uint32_t>(low));
}
inline int __double2hiint(double value) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 32);
}
inline int __double2loint(double value) {
  return static_cast<int>(static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value)));
}

// Rounded once: the file is compiled without contraction.
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
