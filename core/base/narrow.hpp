// Converts numbers to narrower types, where they are known to fit.
#pragma once

#include <sys/statvfs.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- narrow

// Returns the same number in another type. A number that does not fit is a bug of prun.
template <std::integral To, std::integral From>
constexpr To narrow(From number) {
  PRUN_CHECK(std::in_range<To>(number), number, " does not fit where it is to be kept");
  return static_cast<To>(number);
}

// ------------------------------------------------------------------- saturated
// Computes with numbers of bytes that stop at the largest one: file systems without a bound report more free
// bytes than fit.

inline std::int64_t saturated_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Takes numbers that are not negative, as those below do.
inline std::int64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

inline std::int64_t bytes_left(const struct statvfs& facts) {
  return saturated_product(facts.f_bavail, facts.f_frsize);
}

// ------------------------------------------------------------------- median
// Takes the median of measurements.

// Returns the middle number, of an even count the larger of the two; 0 if there are none.
inline double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace prun
