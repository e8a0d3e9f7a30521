// By which angle rotary positions turn a pair of channels from one position to the next, for kernels/cpu and
// kernels/cuda alike: base^(-pair / pairs), and by `factor` less where a turn takes longer than a model's
// training sequences told it (Llama 3.1): pairs that turn round less than `low` times within `original`
// positions are slowed down by all of it, those that do more than `high` times not at all.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace prun {

struct RopeTurn {
  double base = 10000;
  double factor = 1;  // 1: none is slowed down
  double low = 1, high = 4;
  double original = 8192;
};

// The attributes of rope and rope_grad.
template <class Attr>
__attribute__((always_inline)) inline RopeTurn rope_turn(const Attr* attrs) {
  return {attrs[0].f, attrs[1].f, attrs[2].f, attrs[3].f, attrs[4].f};
}

__attribute__((always_inline)) inline double rope_frequency(const RopeTurn& turn, std::int64_t pair,
                                                            std::int64_t pairs) {
  const double frequency = std::pow(turn.base, -static_cast<double>(pair) / static_cast<double>(pairs));
  if (turn.factor == 1) return frequency;
  const double rounds = turn.original * frequency / (2 * std::numbers::pi);
  if (rounds < turn.low) return frequency / turn.factor;
  if (rounds > turn.high) return frequency;
  const double kept = (rounds - turn.low) / (turn.high - turn.low);
  return ((1 - kept) / turn.factor + kept) * frequency;
}

}  // namespace prun
