// Rounds matrices to formats of 8 bits in blocks of any size, apart from what prun has for it: written as the
// formats are defined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace prun::fp8_errors {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> numbers;  // by rows

  float at(std::int64_t i, std::int64_t j) const {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
  float& at(std::int64_t i, std::int64_t j) { return numbers[static_cast<std::size_t>(i * columns + j)]; }
};

inline Matrix transposed(const Matrix& x) {
  Matrix turned{x.columns, x.rows, std::vector<float>(x.numbers.size())};
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j) turned.at(j, i) = x.at(i, j);
  return turned;
}

struct Format {
  int digits, least_exponent;  // digits behind the point, exponent of the smallest normal number
  double largest;
};
inline constexpr Format e4m3{3, -6, 448}, e5m2{2, -14, 57344};

struct Blocks {
  std::int64_t tall, wide;
};

// Rounds to nearest, ties to even; a block's scale is the smallest power of two by which its largest
// magnitude is at most the format's.
inline Matrix rounded(const Matrix& x, const Format& format, const Blocks& blocks) {
  Matrix made = x;
  for (std::int64_t top = 0; top < x.rows; top += blocks.tall)
    for (std::int64_t left = 0; left < x.columns; left += blocks.wide) {
      const std::int64_t bottom = std::min(x.rows, top + blocks.tall),
                         right = std::min(x.columns, left + blocks.wide);
      float largest = 0;
      for (std::int64_t i = top; i < bottom; ++i)
        for (std::int64_t j = left; j < right; ++j) largest = std::max(largest, std::abs(x.at(i, j)));
      if (largest == 0) continue;
      const int scale = std::max(
          -126, static_cast<int>(std::ceil(std::log2(static_cast<double>(largest) / format.largest))));
      for (std::int64_t i = top; i < bottom; ++i)
        for (std::int64_t j = left; j < right; ++j) {
          const auto number = static_cast<double>(x.at(i, j));
          const int exponent =
              number == 0 ? 0 : std::max(std::ilogb(number) - scale, format.least_exponent) + scale;
          const double unit = std::ldexp(1, exponent - format.digits);
          made.at(i, j) = static_cast<float>(std::nearbyint(number / unit) * unit);
        }
    }
  return made;
}

}  // namespace prun::fp8_errors
