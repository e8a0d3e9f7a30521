// SPDX-License-Identifier: Apache-2.0
// Describes the state that ops keep between positions in text generation if it does not grow with the text.
// Several positions are computed per call, the last of which may not become part of the text: the next call
// begins after those that do. So a state is kept as it was before the last call, together with the inputs of
// that call: the next call applies those that count.
#pragma once

#include <cstdint>

namespace prun {

// The maximum number of positions computed per call.
inline constexpr std::int64_t recent_positions = 8;

// Lays out a key head's state under the gated delta rule: for each of its `values` a matrix [key, value]; for
// each recent position the key and, for each of its values, the value, the decay and the share; and the
// number of the first of these positions.
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
