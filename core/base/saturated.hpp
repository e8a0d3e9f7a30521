// Computes with numbers of bytes that stop at the largest one: file systems without a bound report more free
// bytes than fit.
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <limits>

namespace prun {

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

}  // namespace prun
