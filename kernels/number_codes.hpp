// Turns numbers into codes in blocks (prun/block_codes.hpp), for kernels/cpu and kernels/cuda alike: each
// operation is rounded by itself, so that every build and every device gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8_scale.hpp"
#include "prun/block_codes.hpp"

#ifdef __CUDACC__
#define PRUN_CODES __device__ __forceinline__
namespace prun::cuda {
PRUN_CODES float product(float a, float b) { return __fmul_rn(a, b); }
PRUN_CODES double product(double a, double b) { return __dmul_rn(a, b); }
#else
#include "cpu/isa.hpp"
#define PRUN_CODES __attribute__((always_inline)) inline
namespace prun::cpu::PRUN_ISA {
// These files are compiled without products fused into sums.
PRUN_CODES float product(float a, float b) { return a * b; }
PRUN_CODES double product(double a, double b) { return a * b; }
#endif

// Returns a block's scale from its largest magnitude; NaN where that is not finite, or too large for one in
// fp32.
template <Codes codes, class C>
PRUN_CODES float code_scale(C largest) {
  if constexpr (codes == Codes::e4m3)
    return fp32_of_bits(fp8_scale_bits(fp32_bits(static_cast<float>(largest)) & 0x7fffffffu));
  const float scale = static_cast<float>(largest / static_cast<C>(largest_code(bits_of(codes))));
  return scale <= std::numeric_limits<float>::max() ? scale : std::numeric_limits<float>::quiet_NaN();
}

// Returns the scale of signs from the sum of the block's squares. These are added in fp64 in one order on
// every device, four neighbours one after the other, then these 32 sums folded in halves.
PRUN_CODES float sign_scale(double squares) {
  const auto scale = static_cast<float>(sqrt(squares / static_cast<double>(code_block)));
  return scale <= std::numeric_limits<float>::max() ? scale : std::numeric_limits<float>::quiet_NaN();
}

// Rounds to nearest, ties to even: adding this number leaves no bits behind the point.
PRUN_CODES float to_whole(float x) { return (x + 12582912.0f) - 12582912.0f; }
PRUN_CODES double to_whole(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

// Returns the code of a number for a scale above 0. A scale that has left the normal numbers may be too small
// for its block: the largest code limits what comes of it.
template <Codes codes, class C>
PRUN_CODES int code_of_number(C x, float scale) {
  if constexpr (codes == Codes::sign) return x < C(0) ? -1 : 0;
  if constexpr (codes == Codes::e4m3)
    return e4m3_code(static_cast<float>(round_to_e4m3(x / static_cast<C>(scale))));
  const C most = static_cast<C>(largest_code(bits_of(codes))), whole = to_whole(x / static_cast<C>(scale));
  const C above = whole < -most ? -most : whole;
  return static_cast<int>(above > most ? most : above);
}

// A code of one bit is 0 or, with its sign, -1.
template <Codes codes, class C>
PRUN_CODES C number_of_code(int code, float scale) {
  if constexpr (codes == Codes::sign) return static_cast<C>(code < 0 ? -scale : scale);
  if constexpr (codes == Codes::e4m3)
    return product(static_cast<C>(e4m3_number(code)), static_cast<C>(scale));
  return product(static_cast<C>(code), static_cast<C>(scale));
}

// Returns the code at place `i` of a word that has several, with its sign.
template <int bits>
PRUN_CODES int code_in(std::uint32_t word, int i) {
  return static_cast<std::int32_t>(word << (32 - bits * (i + 1))) >> (32 - bits);
}
template <int bits>
PRUN_CODES std::uint32_t code_at(int code, int i) {
  return (static_cast<std::uint32_t>(code) & ((1u << bits) - 1u)) << (bits * i);
}

#ifdef __CUDACC__
}  // namespace prun::cuda
#else
}  // namespace prun::cpu::PRUN_ISA
#endif
