// Draws which elements are dropped, as cpu/drop_draws.hpp does.
#pragma once

#include <cmath>

#include "cuda/philox.cuh"

namespace prun::cuda {

// Holds p > 0 as the largest word of an element that is dropped, and the factor for those that stay. The
// upper 24 bits of a word decide.
template <class C>
struct DropChance {
  std::uint32_t most;
  C scale;

  explicit DropChance(double p)
      : most(static_cast<std::uint32_t>(std::ceil(p * 0x1p24) * 0x1p8 - 1)),
        scale(static_cast<C>(1.0 / (1.0 - p))) {}

  __device__ bool stays(std::uint32_t word) const { return word > most; }
};

// Names the row of a sample at a position, with layer and stream in `place`.
struct DropRow {
  std::uint32_t position, sample, place;
  PhiloxKey key;

  __device__ DropRow(double of_seed, std::int64_t of_sample, std::int64_t at, std::uint32_t of_place)
      : position(static_cast<std::uint32_t>(at)),
        sample(static_cast<std::uint32_t>(of_sample)),
        place(of_place),
        key{static_cast<std::uint32_t>(static_cast<std::uint64_t>(of_seed)),
            static_cast<std::uint32_t>(static_cast<std::uint64_t>(of_seed) >> 32) ^
                static_cast<std::uint32_t>(static_cast<std::uint64_t>(of_sample) >> 32)} {}

  // Draws the words of the channels from 4 * group on.
  __device__ PhiloxBlock draw(std::int64_t group) const {
    return philox({{static_cast<std::uint32_t>(group), position, sample, place}}, key);
  }
};

}  // namespace prun::cuda
