// Draws which elements of a row are dropped (dropout.cpp says by what), for the kernels that drop.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/philox.hpp"
#include "philox_rounds.hpp"

namespace prun::cpu::PRUN_ISA {

inline constexpr std::int64_t most_drawn =
    256;  // is how many channels' words are most_drawn at once, at most

struct DropRow {
  std::uint32_t position;
  std::uint32_t sample;
  std::uint32_t place;  // has layer and stream
  PhiloxKey key;
};

// Draws the words of n or some more channels from 4 * first_group on.
inline void draw_words(const DropRow& row, std::uint32_t first_group, std::int64_t n, std::uint32_t* words) {
  constexpr std::int64_t half = 4 * philox_lanes;  // counts channels of one state
  static_assert(most_drawn % (2 * half) == 0);
  const Words zero = {};
  Words group = zero + first_group;
  for (int l = 0; l < philox_lanes; ++l) group[l] += static_cast<std::uint32_t>(l);
  PhiloxState start = {group, zero + row.position, zero + row.sample, zero + row.place};
  for (std::int64_t c = 0; c < n; c += 2 * half, start.a += 2 * philox_lanes) {
    PhiloxState x = start, y = start;
    y.a += philox_lanes;
    philox<rounds_of_steps>(x, y, row.key);
    x.store(words + c);
    y.store(words + c + half);
  }
}

// Holds p as the smallest word of an element that stays, and the factor for such elements.
template <class C>
struct DropChance {
  std::uint32_t least;
  C scale;

  explicit DropChance(double p)
      : least(static_cast<std::uint32_t>(std::ceil(p * 0x1p24))), scale(static_cast<C>(1.0 / (1.0 - p))) {}
};

// Returns the row of a sample at a position, with layer and stream in `place`.
inline DropRow drop_row_at(double seed_number, std::int64_t sample_number, std::int64_t position,
                           std::uint32_t place) {
  const auto seed = static_cast<std::uint64_t>(seed_number);
  const auto sample = static_cast<std::uint64_t>(sample_number);
  return {static_cast<std::uint32_t>(position),
          static_cast<std::uint32_t>(sample),
          place,
          {static_cast<std::uint32_t>(seed),
           static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(sample >> 32)}};
}

}  // namespace prun::cpu::PRUN_ISA
