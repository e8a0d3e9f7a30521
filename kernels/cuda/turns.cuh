// Computes the turns of rotary positions, for the kernels that turn channels (rope.cu, latent.cu).
#pragma once

#include "cuda/math.cuh"
#include "rope_frequency.hpp"

namespace prun::cuda {

inline constexpr int most_pairs = 256;

// Holds the turn of each pair of channels per position, with its sign: the same numbers as on the CPU.
struct Frequencies {
  double of[most_pairs];
};

// `direction` is 1, or -1 to turn back. There may be at most most_pairs pairs.
inline Frequencies frequencies_of(const RopeTurn& turn, std::int64_t pairs, double direction) {
  Frequencies frequency = {};
  for (std::int64_t i = 0; i < pairs; ++i) frequency.of[i] = direction * rope_frequency(turn, i, pairs);
  return frequency;
}

// Returns the position that a block of row blockIdx.x of a sequence turns by.
template <class Shape>
__device__ double position_of_block(const Shape& shape) {
  const double added = shape.position ? *shape.position : 0.0;
  const std::int64_t at = shape.positions ? shape.positions[blockIdx.x] : shape.first_position + blockIdx.x;
  return added + static_cast<double>(at);
}

}  // namespace prun::cuda
