// Codes moments in 8 bits (prun/eight_bits.hpp), for kernels/cpu and kernels/cuda alike: it uses whole
// numbers and powers of two alone, so that every build and every device gives the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "prun/eight_bits.hpp"

#ifdef __CUDACC__
#define PRUN_BITS __device__ __forceinline__
namespace prun::cuda {
PRUN_BITS std::uint32_t bits_of(float value) { return __float_as_uint(value); }
PRUN_BITS float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
#else
#include "cpu/isa.hpp"
#define PRUN_BITS __attribute__((always_inline)) inline
namespace prun::cpu::PRUN_ISA {
PRUN_BITS std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
PRUN_BITS float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
#endif

// A code is exponent and mantissa of a number below 2: it has so many binades, 3 bits of mantissa each. Below
// the least binade codes are evenly apart, down to 0.
inline constexpr int mantissa_bits = 3, cut_bits = 23 - mantissa_bits;
inline constexpr int signed_binades = 15, unsigned_binades = 31;

PRUN_BITS float power_of_two(int exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// Returns the scale of a block with this largest number: the power of two that leaves it below what the
// largest code stands for. The scale of a block of zeros is 0.
PRUN_BITS float block_scale(float largest) {
  constexpr std::uint32_t fraction = 0x7fffffu, most = 0x700000u;  // that of 1.875
  if (!(largest > 0)) return 0.0f;
  const std::uint32_t bits = bits_of(largest);
  const std::uint32_t exponent = (bits >> 23) + ((bits & fraction) > most ? 1u : 0u);
  // The limits make the scale's inverse a float, and the numbers of codes as well.
  return float_of((exponent < 40 ? 40 : exponent > 214 ? 214 : exponent) << 23);
}

// Returns the factor that brings numbers below 2; for a block of zeros it is 0.
PRUN_BITS float inverse_of(float scale) { return scale > 0 ? float_of(0x7f000000u - bits_of(scale)) : 0.0f; }

// Rounds up by the odds of what is cut off: `chance` is below 2^16. `least` is the least code of a number
// that is not 0. Both ways are computed and one is chosen, so that compilers vectorise it.
template <int binades>
PRUN_BITS std::uint8_t code_of(float value, float inverse_scale, std::uint32_t chance, std::uint32_t least) {
  constexpr std::uint32_t most = (static_cast<std::uint32_t>(binades) << mantissa_bits) | 7u;
  const float ratio = value * inverse_scale, first = power_of_two(1 - binades);
  // Codes are evenly apart below `first`: these numbers are whole with 16 bits after the point.
  const float below = ratio < first ? ratio : first;
  const float steps = (below > 0 ? below : 0.0f) * power_of_two(binades - 1 + mantissa_bits) * 65536.0f;
  const std::uint32_t even = (static_cast<std::uint32_t>(static_cast<std::int32_t>(steps)) + chance) >> 16;
  const std::uint32_t bits = bits_of(ratio) + (chance << (cut_bits - 16));
  const std::uint32_t above =
      (bits >> cut_bits) - (static_cast<std::uint32_t>(127 - binades) << mantissa_bits);
  std::uint32_t code = ratio < first ? even : above;
  code = code > most ? most : code;
  code = code < least ? least : code;
  return static_cast<std::uint8_t>(ratio > 0 ? code : 0u);
}

template <int binades>
PRUN_BITS float value_of(std::uint32_t code, float scale) {
  const std::uint32_t exponent = code >> mantissa_bits, mantissa = code & 7u;
  const float even =
      static_cast<float>(static_cast<std::int32_t>(mantissa)) * power_of_two(1 - binades - mantissa_bits);
  const float above =
      float_of(((exponent + static_cast<std::uint32_t>(127 - binades)) << 23) | (mantissa << cut_bits));
  return (exponent == 0 ? even : above) * scale;
}

PRUN_BITS std::uint8_t signed_code(float value, float inverse_scale, std::uint32_t chance) {
  const std::uint8_t size = code_of<signed_binades>(value < 0 ? -value : value, inverse_scale, chance, 0);
  return static_cast<std::uint8_t>(size | (value < 0 ? 0x80u : 0u));
}
PRUN_BITS float signed_value(std::uint8_t code, float scale) {
  const float size = value_of<signed_binades>(code & 0x7fu, scale);
  return (code & 0x80u) != 0 ? -size : size;
}
PRUN_BITS std::uint8_t unsigned_code(float value, float inverse_scale, std::uint32_t chance) {
  return code_of<unsigned_binades>(value, inverse_scale, chance, 1);
}
PRUN_BITS float unsigned_value(std::uint8_t code, float scale) {
  return value_of<unsigned_binades>(code, scale);
}

#ifdef __CUDACC__
}  // namespace prun::cuda
#else
}  // namespace prun::cpu::PRUN_ISA
#endif
