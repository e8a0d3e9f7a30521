// Rounding to e4m3, under CUDA's names.
#pragma once

#include <cmath>
#include <cstdint>

struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };

// In steps of 2^-9 below 2^-6, of an eighth of the power of two from there on; at most 448.
inline std::uint8_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t, __nv_fp8_interpretation_t) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return 0x7f;
  const float size = std::fabs(x);
  if (size >= 448) return sign | 0x7e;
  if (size < 0x1p-6f) return static_cast<std::uint8_t>(sign | static_cast<int>(std::nearbyint(size * 0x1p9f)));
  const int power = std::ilogb(size);
  const int eighths = static_cast<int>(std::nearbyint(std::scalbn(size, 3 - power)));  // 8 to 16
  return static_cast<std::uint8_t>(sign | (((power + 7) << 3) + (eighths - 8)));
}
inline std::uint16_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t how, __nv_fp8_interpretation_t as) {
  return static_cast<std::uint16_t>(__nv_cvt_float_to_fp8(x.x, how, as) |
                                    __nv_cvt_float_to_fp8(x.y, how, as) << 8);
}
