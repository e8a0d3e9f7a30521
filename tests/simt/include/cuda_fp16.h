// Rounding to fp16 and back, under CUDA's names.
#pragma once

#include "prun/types.hpp"

struct __half {
  std::uint16_t bits;
};
struct __half2 {
  __half x, y;
};

inline __half __float2half_rn(float value) { return {prun::f16(value).bits}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline std::uint16_t __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(std::uint16_t bits) { return {bits}; }
inline float __half2float(__half value) {
  prun::f16 number;
  number.bits = value.bits;
  return static_cast<float>(number);
}
