// SPDX-License-Identifier: Apache-2.0
// Defines the updates (adamw, sgd), the average of what they make, and what decides about them: the
// gradient's sum of squares, and from it the global norm, the clip factor and `keep`. keep = 0 masks every
// update, so a non-finite step changes nothing; then count_non_finite finds out which tensors it was.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct SumSquares {
  static constexpr const char* kind = "sum_squares";
  static constexpr const char* help = "sum += sum of x^2, in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<SumSquares> s);
};

// Everything here is a runtime scalar in fp64.
struct ClipFactor {
  static constexpr const char* kind = "clip_factor";
  static constexpr const char* help =
      "norm = sqrt(sum) / scale; keep = norm and loss are finite and halt is 0; clip = min(1, limit / norm) "
      "/ "
      "scale, by which the loss was multiplied";
  static constexpr OperandDef operands[] = {{"sum"},
                                            {"loss"},
                                            {"halt"},
                                            {"norm", Access::write},
                                            {"clip", Access::write},
                                            {"keep", Access::write},
                                            {"scale", Access::read, true}};
  static constexpr AttrDef attrs[] = {real_attr("limit", 0.0)};  // 0: no clipping
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ClipFactor> s);
};

// Counts are sums: however a gradient is placed, its ranks' counts have the same sum.
struct CountNonFinite {
  static constexpr const char* kind = "count_non_finite";
  static constexpr const char* help =
      "where keep is 0: counts[index + layer * stride] += elements of x that are not finite; where "
      "`elements` is not 0, of those from `first` on alone";
  static constexpr OperandDef operands[] = {{"x"}, {"keep"}, {"counts", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("index", 0), int_attr("stride", 0), int_attr("first", 0),
                                      int_attr("elements", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<CountNonFinite> s);
  static void cost(ShapeOf<CountNonFinite> s, OpCost& c);
};

// lr, step, clip and keep are runtime scalars, and so is the seed of what rounds stochastically: states in
// bf16, and a parameter in bf16 that has no master copy. `master` is the parameter with more precision than
// it has itself or, in u16, what it lacks of an fp32 (prun/split_master.hpp).
struct AdamW {
  static constexpr const char* kind = "adamw";
  static constexpr const char* help = "Adam with decoupled weight decay";
  static constexpr OperandDef operands[] = {{"parameter", Access::update},
                                            {"master", Access::update, true},
                                            {"gradient"},
                                            {"m", Access::update},
                                            {"v", Access::update},
                                            {"lr"},
                                            {"step"},
                                            {"clip"},
                                            {"keep"},
                                            {"seed", Access::read, true},
                                            {"m_scale", Access::update, true},
                                            {"v_scale", Access::update, true}};
  static constexpr AttrDef attrs[] = {real_attr("beta1", 0.9), real_attr("beta2", 0.999),
                                      real_attr("eps", 1e-8), real_attr("weight_decay", 0.0),
                                      real_attr("lr_scale", 1.0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<AdamW> s);
};

// Stands for adamw and the keep_old of all that it changes (prun/ops/speculation.hpp), where a device runs
// them at once: what both read is read once. Moments in 8 bits are kept apart.
struct AdamWKeepingOld {
  static constexpr const char* kind = "adamw_keeping_old";
  static constexpr const char* help = "where keep is not 0: old_x = x of all that it changes, then adamw";
  static constexpr OperandDef operands[] = {{"parameter", Access::update},
                                            {"master", Access::update, true},
                                            {"gradient"},
                                            {"m", Access::update},
                                            {"v", Access::update},
                                            {"lr"},
                                            {"step"},
                                            {"clip"},
                                            {"keep"},
                                            {"seed", Access::read, true},
                                            {"old_parameter", Access::write},
                                            {"old_master", Access::write, true},
                                            {"old_m", Access::write},
                                            {"old_v", Access::write}};
  static constexpr const auto& attrs = AdamW::attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<AdamWKeepingOld> s);
};

// Without a clip factor it takes the gradient as it is, such as a direction that other ops have made.
struct Sgd {
  static constexpr const char* kind = "sgd";
  static constexpr const char* help = "stochastic gradient descent, momentum and decoupled decay optional";
  static constexpr OperandDef operands[] = {{"parameter", Access::update},
                                            {"master", Access::update, true},
                                            {"gradient"},
                                            {"momentum", Access::update, true},
                                            {"lr"},
                                            {"clip", Access::read, true},
                                            {"keep"},
                                            {"step", Access::read, true},
                                            {"seed", Access::read, true}};
  static constexpr AttrDef attrs[] = {real_attr("momentum", 0.0), real_attr("weight_decay", 0.0),
                                      real_attr("lr_scale", 1.0)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<Sgd>);
};

// The first step makes the weight itself of zeros, so an average needs no value to begin with.
struct AverageWeights {
  static constexpr const char* kind = "average_weights";
  static constexpr const char* help =
      "average += (1 - decay) / (1 - decay^step) (weight - average), so that it is the mean of the weights "
      "behind each update so far, of which each counts decay times as much as the next";
  static constexpr OperandDef operands[] = {
      {"parameter"}, {"master", Access::read, true}, {"average", Access::update}, {"step"}, {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("decay", 0.999)};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<AverageWeights>);
};

}  // namespace prun::ops
