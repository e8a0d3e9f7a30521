// Computes exp_of, tanh_of, sigmoid and sine with cosine without branches, so that loops over them become
// vector code. For double, exp_of and tanh_of are the library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/isa.hpp"

namespace prun::cpu::PRUN_ISA {

// The result is within 2 ulp; 0 below -87.33 and infinity above 88.37. NaN stays NaN.
inline float exp_of(float x) {
  constexpr float log2e = 1.44269504f, ln2_high = 0.693115234375f, ln2_low = 3.19461849e-5f;
  constexpr float lowest = -87.33f, highest = 88.37f;
  constexpr float rounder = 0x1.8p23f;  // adding it rounds to an integer, left in the low bits
  const float shifted = x * log2e + rounder;
  const float n = shifted - rounder;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float q = 1.39262135e-3f;
  q = q * r + 8.36320297e-3f;
  q = q * r + 4.16665544e-2f;
  q = q * r + 1.66665768e-1f;
  q = q * r + 0.5f;
  const float fraction = (q * r) * r + (r + 1.0f);
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u;
  const float result = fraction * std::bit_cast<float>(exponent);
  const float low_end = x < lowest ? 0.0f : result;
  return x > highest ? std::numeric_limits<float>::infinity() : low_end;
}

inline double exp_of(double x) { return std::exp(x); }

// The result is within 2 ulp. NaN stays NaN.
inline float tanh_of(float x) {
  const float size = std::abs(x), z = x * x;
  float q = -5.70498640e-3f;
  q = q * z + 2.06390861e-2f;
  q = q * z - 5.37397154e-2f;
  q = q * z + 0.133314416f;
  q = q * z - 0.333332807f;
  const float near = x + x * (z * q);
  const float far = std::copysign(1.0f - 2.0f / (exp_of(2.0f * size) + 1.0f), x);
  return size < 0.625f ? near : far;
}

inline double tanh_of(double x) { return std::tanh(x); }

// Holds 1 / (1 + e^-x), and its difference to 1, each to full relative precision.
template <class T>
struct Sigmoid {
  T value;
  T rest;
};

template <class T>
inline Sigmoid<T> sigmoid(T x) {
  const T bounded = x < T(-80) ? T(-80) : x;  // keeps the exponential finite
  const T e = exp_of(-bounded);
  const T value = T(1) / (T(1) + e);
  return {value, e * value};
}

struct SineCosine {
  double sine;
  double cosine;
};

// The result is within 2^-50 for |x| < 10^6.
inline SineCosine sine_cosine(double x) {
  constexpr double half_pi_high = 0x1.921fb544p+0, half_pi_middle = 0x1.0b4611a6p-34,
                   half_pi_low = 0x1.3198a2e037073p-69, two_over_pi = 0.63661977236758134308;
  constexpr double rounder = 0x1.8p52;
  const double shifted = x * two_over_pi + rounder;
  const double n = shifted - rounder;
  const double r = ((x - n * half_pi_high) - n * half_pi_middle) - n * half_pi_low;
  const double z = r * r;
  double s = 1.5918101230274120e-10;
  s = s * z - 2.5051131455427948e-8;
  s = s * z + 2.7557316100683029e-6;
  s = s * z - 1.9841269836754970e-4;
  s = s * z + 8.3333333333309461e-3;
  s = s * z - 1.6666666666666665e-1;
  const double sine = (s * z) * r + r;
  double c = -1.1382614868556325e-11;
  c = c * z + 2.0876146024689746e-9;
  c = c * z - 2.7557317270560324e-7;
  c = c * z + 2.4801587298763433e-5;
  c = c * z - 1.3888888888887396e-3;
  c = c * z + 4.1666666666666665e-2;
  const double cosine = (c * z) * z + (1.0 - 0.5 * z);
  const auto quarter = std::bit_cast<std::uint64_t>(shifted);
  const bool swapped = quarter & 1;
  const double turned_sine = swapped ? cosine : sine, turned_cosine = swapped ? sine : cosine;
  return {quarter & 2 ? -turned_sine : turned_sine, (quarter + 1) & 2 ? -turned_cosine : turned_cosine};
}

}  // namespace prun::cpu::PRUN_ISA
