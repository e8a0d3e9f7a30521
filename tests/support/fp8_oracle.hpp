// Computes what numbers become in blocks of fp8 from the list of all numbers that e4m3 has.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/kernel_call.hpp"

namespace prun::test {

// Returns a code's number: a sign, 4 bits of exponent, 3 behind the point; both largest codes are NaN.
inline double e4m3_number(int code) {
  const int exponent = code >> 3 & 15, digits = code & 7;
  const double sign = code & 0x80 ? -1 : 1;
  if ((code & 0x7f) == 0x7f) return std::nan("");
  return exponent == 0 ? sign * digits * std::ldexp(1, -9)
                       : sign * (8 + digits) * std::ldexp(1, exponent - 10);
}

// Returns the nearest of these numbers, of two the one whose code is even.
inline double nearest_e4m3(double x) {
  double best = 0, distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7f; ++code) {
    const double apart = std::abs(std::abs(x) - e4m3_number(code));
    if (apart < distance || (apart == distance && code % 2 == 0)) best = e4m3_number(code), distance = apart;
  }
  return std::copysign(best, x);
}

// Returns the smallest power of two, from 2^-126 on, by which it is at most 448.
inline double fp8_scale(double largest) {
  double scale = std::ldexp(1, -126);
  while (largest / scale > 448) scale *= 2;
  return scale;
}

// Rounds a row-major matrix of so many columns, in blocks of that many rows and columns.
inline Value rounded_to_fp8(const Value& x, std::size_t columns, std::size_t tall, std::size_t wide) {
  Value rounded(x.dtype(), x.dims());
  const std::size_t rows = x.size() / columns;
  for (std::size_t top = 0; top < rows; top += tall)
    for (std::size_t left = 0; left < columns; left += wide) {
      const std::size_t bottom = std::min(rows, top + tall), right = std::min(columns, left + wide);
      double largest = 0;
      bool finite = true;
      const auto each = [&](auto body) {
        for (std::size_t i = top; i < bottom; ++i)
          for (std::size_t j = left; j < right; ++j) body(i * columns + j);
      };
      each([&](std::size_t at) {
        finite = finite && std::isfinite(x[at]);
        largest = std::max(largest, std::abs(x[at]));
      });
      const double scale = finite ? fp8_scale(largest) : std::nan("");
      each([&](std::size_t at) { rounded.set(at, finite ? nearest_e4m3(x[at] / scale) * scale : scale); });
    }
  return rounded;
}

// Holds what becomes of numbers in fp8, as count_fp8_codes and peak_fp8_scales count it.
struct Fp8Found {
  std::vector<double> counts = {0, 0, 0}, peaks = {0, 0, 0};
};

// Counts in blocks of that many rows and columns.
inline Fp8Found found_in_fp8(const Value& x, std::size_t columns, std::size_t tall, std::size_t wide) {
  Fp8Found found;
  const std::size_t rows = x.size() / columns;
  const Value rounded = rounded_to_fp8(x, columns, tall, wide);
  for (std::size_t top = 0; top < rows; top += tall)
    for (std::size_t left = 0; left < columns; left += wide) {
      double largest = 0;
      for (const bool counts : {false, true})
        for (std::size_t i = top; i < std::min(rows, top + tall); ++i)
          for (std::size_t at = i * columns + left; at < i * columns + std::min(columns, left + wide); ++at) {
            if (x[at] == 0 || std::isnan(rounded[at])) continue;
            largest = std::max(largest, std::abs(x[at]));
            if (!counts) continue;
            const double code = std::abs(rounded[at]) / fp8_scale(largest);
            found.counts[0] += 1;
            found.counts[1] += code == 0;
            found.counts[2] += code > 0 && code < std::ldexp(1, -6);
          }
      if (largest == 0) continue;
      const double exponent = std::ilogb(fp8_scale(largest)) + 127;
      const double peaks[] = {largest, exponent, 255 - exponent};
      for (std::size_t k = 0; k < 3; ++k) found.peaks[k] = std::max(found.peaks[k], peaks[k]);
    }
  return found;
}

// Returns a matrix of which some numbers are too small for their block's scale, or nearly so.
inline Value steep_numbers(DType type, std::int64_t rows, std::int64_t columns, unsigned seed) {
  Value x = Value::random(type, {rows, columns}, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    x.set(i, i % 11 == 0 ? 0 : x[i] * std::ldexp(1, -static_cast<int>(i * 7 % 23)));
  return x;
}

// Returns blocks of quite different sizes, one of zeros, some at the end of the type's range.
inline Value uneven_numbers(DType type, std::int64_t rows, std::int64_t columns, unsigned seed) {
  Value x = Value::random(type, {rows, columns}, seed);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / columns, column = static_cast<std::int64_t>(i) % columns;
    const std::int64_t power = (3 * (row / 128) + 5 * (column / 128) + row % 3) % 16 - 9;
    x.set(i, row / 128 == 1 && column / 128 == 0 ? 0 : x[i] * std::ldexp(1, static_cast<int>(power)));
  }
  return x;
}

}  // namespace prun::test
