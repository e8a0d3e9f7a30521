// Computes scales and codes of blocks in fp8 (prun/fp8_blocks.hpp), for kernels/cpu and kernels/cuda alike.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PRUN_FP8 __device__ __forceinline__
namespace prun::cuda {
PRUN_FP8 std::uint32_t fp32_bits(float x) { return __float_as_uint(x); }
PRUN_FP8 float fp32_of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
// Returns the power of two that a number's digits begin with.
PRUN_FP8 double power_of(double x) { return __hiloint2double(__double2hiint(x) & 0x7ff00000, 0); }
#else
#include <bit>

#include "cpu/isa.hpp"
#define PRUN_FP8 __attribute__((always_inline)) inline
namespace prun::cpu::PRUN_ISA {
PRUN_FP8 std::uint32_t fp32_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
PRUN_FP8 float fp32_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
// Returns the power of two that a number's digits begin with.
PRUN_FP8 double power_of(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000u);
}
#endif

inline constexpr float fp8_largest = 448, e4m3_least_normal = 0.015625f;

// Returns the bits of the smallest power of two by which a magnitude is at most 448 = 1.75 * 2^8, but no
// smaller than the normal numbers are: a block's numbers are divided by it. `bits` are those of the largest
// magnitude, in fp32; where that is not finite, the result is NaN's.
PRUN_FP8 std::uint32_t fp8_scale_bits(std::uint32_t bits) {
  constexpr std::uint32_t digits = 0x007fffffu, most_digits = 0x00600000u;
  const std::uint32_t exponent = bits >> 23;
  if (exponent == 255) return 0x7fc00000u;
  const std::uint32_t up = (bits & digits) > most_digits ? 1u : 0u;
  return (exponent + up > 8 ? exponent + up - 8 : 1u) << 23;
}

// Returns the bits of one divided by such a scale, which is as exact as the scale.
PRUN_FP8 std::uint32_t fp8_inverse_bits(std::uint32_t scale_bits) {
  return scale_bits == 0x7fc00000u ? scale_bits : (254u << 23) - scale_bits;
}

// Rounds to e4m3 a number of at most 448, but for what rounding has added to it before: adding `digits`
// leaves no bits behind the last digit.
PRUN_FP8 float round_to_e4m3(float x) {
  const float power = fp32_of_bits(fp32_bits(x) & 0x7f800000u);
  const float digits = (power < e4m3_least_normal ? e4m3_least_normal : power) * 1572864.0f;  // is 1.5 * 2^20
  const float rounded = (x + digits) - digits;
  const float above = rounded < -fp8_largest ? -fp8_largest : rounded;
  return above > fp8_largest ? fp8_largest : above;
}
PRUN_FP8 double round_to_e4m3(double x) {
  constexpr double least = e4m3_least_normal, most = fp8_largest;
  const double power = power_of(x);
  const double digits = (power < least ? least : power) * 844424930131968.0;  // is 1.5 * 2^49
  const double rounded = (x + digits) - digits;
  const double above = rounded < -most ? -most : rounded;
  return above > most ? most : above;
}

// A code of the type is a sign, 4 bits of exponent and 3 behind the point. Below 2^-6 numbers are even
// multiples of 2^-10.
inline constexpr std::uint32_t e4m3_from_fp32 = 120u << 3;  // between exponents, in front of 3 digits

// The number must be one that e4m3 has.
PRUN_FP8 int e4m3_code(float x) {
  const float size = x < 0 ? -x : x;
  const int code = size < e4m3_least_normal ? static_cast<int>(size * 512)
                                            : static_cast<int>((fp32_bits(size) >> 20) - e4m3_from_fp32);
  return x < 0 ? code | 0x80 : code;
}
PRUN_FP8 float e4m3_number(int code) {
  const auto size = static_cast<std::uint32_t>(code) & 0x7fu;
  const float number =
      size < 8 ? static_cast<float>(size) / 512 : fp32_of_bits((size + e4m3_from_fp32) << 20);
  return (code & 0x80) != 0 ? -number : number;
}

#ifdef __CUDACC__
}  // namespace prun::cuda
#else
}  // namespace prun::cpu::PRUN_ISA
#endif
