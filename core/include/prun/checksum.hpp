// SPDX-License-Identifier: Apache-2.0
// Defines what an element adds to the op `checksum`, whose sums are the same on every device. The sums are
// integers, so that the order of additions does not matter; different contents of an element add different
// terms, so that a change of one element is always detected.
#pragma once

#include <cstdint>

namespace prun {

__attribute__((always_inline)) constexpr std::uint64_t checksum_term(std::uint64_t bits, std::int64_t index) {
  std::uint64_t x = bits + static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

}  // namespace prun
