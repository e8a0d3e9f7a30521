// The scale of a block in fp8 (prun/fp8_blocks.hpp), for kernels/cpu and kernels/cuda alike.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PRUN_FP8 __device__ __forceinline__
namespace prun::cuda {
#else
#include <bit>

#include "cpu/isa.hpp"
#define PRUN_FP8 __attribute__((always_inline)) inline
namespace prun::cpu::PRUN_ISA {
#endif

inline constexpr float fp8_largest = 448;

// The bits of the smallest power of two by which a magnitude is at most 448 = 1.75 * 2^8, but no smaller than
// the normal numbers are: what a block's numbers are divided by. `bits` are those of the largest magnitude,
// in fp32; of one that is not finite, those of NaN.
PRUN_FP8 std::uint32_t fp8_scale_bits(std::uint32_t bits) {
  constexpr std::uint32_t digits = 0x007fffffu, most_digits = 0x00600000u;
  const std::uint32_t exponent = bits >> 23;
  if (exponent == 255) return 0x7fc00000u;
  const std::uint32_t up = (bits & digits) > most_digits ? 1u : 0u;
  return (exponent + up > 8 ? exponent + up - 8 : 1u) << 23;
}

// Of one divided by such a scale: as exact as the scale.
PRUN_FP8 std::uint32_t fp8_inverse_bits(std::uint32_t scale_bits) {
  return scale_bits == 0x7fc00000u ? scale_bits : (254u << 23) - scale_bits;
}

#ifdef __CUDACC__
}  // namespace prun::cuda
#else
}  // namespace prun::cpu::PRUN_ISA
#endif
