// Computes by which angle rotary positions turn a pair of channels from one position to the next, for
// kernels/cpu and kernels/cuda alike: base^(-pair / pairs), and by `factor` less where sequences are longer
// than those that a model was first trained on. Which pairs are slowed down:
//   by rounds  pairs that turn round less than `low` times within `original` positions by all of it, pairs of
//              more than `high` turns not at all, between them in proportion to their rounds (Llama 3.1)
//   all        every pair alike (linear)
//   by pairs   as by rounds, but between the two in proportion to the pair's number (YaRN)
//   by place   as by pairs, but the two need be no whole pairs (YaRN of gpt-oss)
//   by list    each pair by a number of its own instead of `factor` (longrope)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "prun/kernel.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define PRUN_ROPE_SCALE __device__ inline
#else
#define PRUN_ROPE_SCALE __attribute__((always_inline)) inline
#endif

namespace prun {

enum class RopeScaling : std::int64_t { by_rounds, all, by_pairs, by_place, by_list };

struct RopeTurn {
  double base = 10000;
  double factor = 1;  // 1: no pair is slowed down
  double low = 1, high = 4;
  double original = 8192;
  RopeScaling scaling = RopeScaling::by_rounds;
  double query_scale = 1, key_scale = 1;  // multiply queries and keys
  double query_growth = 0;                // queries grow by so much of the logarithm of `original` passed
  double turned_scale = 1;                // multiplies the channels of both that turn, besides
  const Attr* slower = nullptr;           // of by_list: the number of each pair, for the host alone
};

// Says which channels of a head make the pairs that turn: neighbours, or channel i and i + pairs, of the
// first 2 * pairs ones.
struct RopePairs {
  std::int64_t pairs;
  bool interleaved;
};

// Returns what queries at a position are multiplied by.
PRUN_ROPE_SCALE double rope_query_scale(const RopeTurn& turn, double position) {
  if (turn.query_growth == 0) return turn.query_scale;
  return turn.query_scale * (1 + turn.query_growth * std::log(1 + std::floor(position / turn.original)));
}

// Returns the share of its own turn that a pair keeps, if it lies between two pairs that turn round `high`
// and `low` times: whole ones, about, or places between pairs.
__attribute__((always_inline)) inline double kept_by_pairs(const RopeTurn& turn, std::int64_t pair,
                                                           std::int64_t pairs) {
  const auto with_rounds = [&](double rounds) {
    return static_cast<double>(pairs) * std::log(turn.original / (rounds * 2 * std::numbers::pi)) /
           std::log(turn.base);
  };
  const bool whole = turn.scaling == RopeScaling::by_pairs;
  const double high = with_rounds(turn.high), low = with_rounds(turn.low);
  const double first = std::max(whole ? std::floor(high) : high, 0.0),
               last = std::min(whole ? std::ceil(low) : low, static_cast<double>(2 * pairs - 1)),
               width = first == last ? 0.001 : last - first;
  return 1 - std::clamp((static_cast<double>(pair) - first) / width, 0.0, 1.0);
}

__attribute__((always_inline)) inline double rope_frequency(const RopeTurn& turn, std::int64_t pair,
                                                            std::int64_t pairs) {
  const double frequency = std::pow(turn.base, -static_cast<double>(pair) / static_cast<double>(pairs));
  if (turn.slower != nullptr) return frequency / turn.slower[pair].f;
  if (turn.factor == 1) return frequency;
  if (turn.scaling == RopeScaling::all) return frequency / turn.factor;
  double kept = 0;
  if (turn.scaling == RopeScaling::by_pairs || turn.scaling == RopeScaling::by_place) {
    kept = kept_by_pairs(turn, pair, pairs);
  } else {
    const double rounds = turn.original * frequency / (2 * std::numbers::pi);
    if (rounds < turn.low) return frequency / turn.factor;
    if (rounds > turn.high) return frequency;
    kept = (rounds - turn.low) / (turn.high - turn.low);
  }
  return ((1 - kept) / turn.factor + kept) * frequency;
}

}  // namespace prun

#undef PRUN_ROPE_SCALE
