// Computes by which angle rotary positions turn a pair of channels from one position to the next, for
// kernels/cpu and kernels/cuda alike: base^(-pair / pairs), and by `factor` less where sequences are longer
// than those that a model was first trained on. Which pairs are slowed down:
//   by rounds  pairs that turn round less than `low` times within `original` positions by all of it, pairs of
//              more than `high` turns not at all, between them in proportion to their rounds (Llama 3.1)
//   all        every pair alike (linear)
//   by pairs   as by rounds, but between the two in proportion to the pair's number (YaRN)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace prun {

enum class RopeScaling : std::int64_t { by_rounds, all, by_pairs };

struct RopeTurn {
  double base = 10000;
  double factor = 1;  // 1: no pair is slowed down
  double low = 1, high = 4;
  double original = 8192;
  RopeScaling scaling = RopeScaling::by_rounds;
  double query_scale = 1, key_scale = 1;  // multiply queries and keys
};

// Reads the attributes of rope and rope_grad.
template <class Attr>
__attribute__((always_inline)) inline RopeTurn rope_turn(const Attr* attrs) {
  return {attrs[0].f, attrs[1].f, attrs[2].f, attrs[3].f, attrs[4].f, static_cast<RopeScaling>(attrs[5].i),
          attrs[6].f, attrs[7].f};
}

// Returns the share of its own turn that a pair keeps, if it lies between two pairs, whole ones that turn
// round about `high` and `low` times.
__attribute__((always_inline)) inline double kept_by_pairs(const RopeTurn& turn, std::int64_t pair,
                                                           std::int64_t pairs) {
  const auto with_rounds = [&](double rounds) {
    return static_cast<double>(pairs) * std::log(turn.original / (rounds * 2 * std::numbers::pi)) /
           std::log(turn.base);
  };
  const double first = std::max(std::floor(with_rounds(turn.high)), 0.0),
               last = std::min(std::ceil(with_rounds(turn.low)), static_cast<double>(2 * pairs - 1)),
               width = first == last ? 0.001 : last - first;
  return 1 - std::clamp((static_cast<double>(pair) - first) / width, 0.0, 1.0);
}

__attribute__((always_inline)) inline double rope_frequency(const RopeTurn& turn, std::int64_t pair,
                                                            std::int64_t pairs) {
  const double frequency = std::pow(turn.base, -static_cast<double>(pair) / static_cast<double>(pairs));
  if (turn.factor == 1) return frequency;
  if (turn.scaling == RopeScaling::all) return frequency / turn.factor;
  double kept = 0;
  if (turn.scaling == RopeScaling::by_pairs) {
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
