// SPDX-License-Identifier: Apache-2.0
// Defines the order of a sequence's positions where ranks share it out. Contiguous parts of a sequence are
// not alike under a causal mask: the last has most to look at. So each of n ranks may have two of 2n chunks,
// one from the front and one from the back: rank r those numbered r and 2n - 1 - r. An element of such a
// sequence belongs to another position than its place; positions go up along each rank's part.
#pragma once

#include <cstdint>

namespace prun {

struct SequenceOrder {
  std::int64_t chunk = 0;   // positions of a chunk; 0 if a place is the position
  std::int64_t chunks = 0;  // chunks of a sequence, two for each rank

  constexpr bool permutes() const { return chunk > 0; }
  constexpr std::int64_t position(std::int64_t place) const {
    if (!permutes()) return place;
    const std::int64_t number = place / chunk, rank = number / 2;
    return (number % 2 == 0 ? rank : chunks - 1 - rank) * chunk + place % chunk;
  }
};

}  // namespace prun
