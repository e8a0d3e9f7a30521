// SPDX-License-Identifier: Apache-2.0
// Says what ops keep between positions of a text that is made, where that does not grow with the text. Some
// positions are computed at a time, of which the last ones may be no part of the text: the next call begins
// behind those that are. So a state is that in front of the last call, beside what this was given: the next
// call takes from it what counts.
#pragma once

#include <cstdint>

namespace prun {

// Counts the positions that are computed at a time, at most.
inline constexpr std::int64_t recent_positions = 8;

// Lays out the state of a key head under the gated delta rule: of each of its `values` a matrix [key,
// value]; of each recent position its key and of each of its values the value, the decay and the share; and
// the number of the first of these positions.
struct DeltaState {
  std::int64_t key, values, value;  // widths of a key and a value, and how many values there are

  constexpr std::int64_t matrix(std::int64_t of) const { return of * key * value; }
  constexpr std::int64_t recent(std::int64_t position) const {
    return matrix(values) + position * (key + values * (value + 2));
  }
  // Where a recent position has what belongs to a value, in elements behind recent().
  constexpr std::int64_t of_value(std::int64_t i) const { return key + i * (value + 2); }
  constexpr std::int64_t first() const { return recent(recent_positions); }
  constexpr std::int64_t numbers() const { return first() + 1; }
};

}  // namespace prun
