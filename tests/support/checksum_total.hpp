// Adds up the parts of a checksum, however a tensor was shared out among them.
#pragma once

#include <cstdint>
#include <cstring>

#include "tests/support/kernel_call.hpp"

namespace prun::test {

inline std::uint64_t total(const Value& sums) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    std::uint64_t sum;
    std::memcpy(&sum, sums.bytes().data() + 8 * i, sizeof sum);
    total += sum;
  }
  return total;
}

}  // namespace prun::test
