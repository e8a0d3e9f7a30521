// SPDX-License-Identifier: Apache-2.0
// Defines the order of positions in a sequence that is split over ranks. Contiguous parts are unequal work
// under a causal mask: the last attends to most positions. So each of n ranks may have two of 2n chunks, one
// from the front and one from the back: rank r has chunks r and 2n - 1 - r. An element's position then
// differs from its index; positions increase along each rank's part.
#pragma once

#include <cstdint>

namespace prun {

struct SequenceOrder {
  std::int64_t chunk = 0;   // positions of a chunk; 0 if an element's index is its position
  std::int64_t chunks = 0;  // chunks of a sequence, two for each rank

  constexpr bool permutes() const { return chunk > 0; }
  constexpr std::int64_t position(std::int64_t place) const {
    if (!permutes()) return place;
    const std::int64_t number = place / chunk, rank = number / 2;
    return (number % 2 == 0 ? rank : chunks - 1 - rank) * chunk + place % chunk;
  }
};

}  // namespace prun
