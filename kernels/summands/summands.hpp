// SPDX-License-Identifier: Apache-2.0
// Defines what an update is made of if ranks sum its results rather than the gradient: each rank mixes its
// own summand of the gradient into the state, the results are summed, in codes with what codes leave out kept
// for the next step, and the sum gives a direction.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct SummandSquares {
  static constexpr const char* kind = "summand_squares";
  static constexpr const char* help =
      "sum += sum of x^2, in fp64, of a summand as it is: the square that the ranks' sum would have, were "
      "their summands at right angles";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<SummandSquares> s);
};

// Keeps on one rank the summands that several would have.
struct KeepSummand {
  static constexpr const char* kind = "keep_summand";
  static constexpr const char* help =
      "the rows of summands move up by one, the first is left out, and the last = x";
  static constexpr OperandDef operands[] = {{"x"}, {"summands", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<KeepSummand> s);
};

// The state is alike on all ranks: each has a share of it.
struct MomentumSummand {
  static constexpr const char* kind = "momentum_summand";
  static constexpr const char* help =
      "of each row of gradient, as long as m: (beta / summands) m + (1 - beta) clip gradient, of which so "
      "many make up beta m + (1 - beta) clip (the gradient's sum)";
  static constexpr OperandDef operands[] = {{"gradient"}, {"m"}, {"clip"}, {"summand", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("beta", 0.9), int_attr("summands", 1)};
  static void rule(RuleOf<MomentumSummand> s);
};

struct FrozenDirection {
  static constexpr const char* kind = "frozen_direction";
  static constexpr const char* help =
      "direction = sum / (sqrt(v / (1 - beta^frozen_at)) + eps), by v as it is where frozen_at is 0; m = "
      "sum, "
      "unless keep is 0";
  static constexpr OperandDef operands[] = {
      {"sum"}, {"m", Access::update}, {"v"}, {"keep"}, {"direction", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("eps", 1e-8), real_attr("beta", 0.999),
                                      int_attr("frozen_at", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<FrozenDirection> s);
};

}  // namespace prun::ops
