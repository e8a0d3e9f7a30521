// SPDX-License-Identifier: Apache-2.0
// Defines experts whose projections have biases, and whose activations may be bounded, as in gpt-oss:
//   y = sum over choices c of weight[c] * down[e] * act(up[e] * x + up_bias[e]), e = index[c]
// biased_experts computes it without what `down` has for a bias: that is expert_biases,
//   y = sum over choices c of weight[c] * bias[index[c]],
// which is summed over the ranks that share out experts, but not over those that share out their width. With
// `limit` the gate g goes to min(g, limit), u lies in [-limit, limit], and act = (u + 1) g sigmoid(alpha g);
// where it is 0, act = silu(g) u. What is beyond the limit gets no gradient. Backward computes the
// activations' operands again.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

// `experts` counts those of all ranks.
inline constexpr AttrDef bounded_experts_attrs[] = {int_attr("experts", 0), real_attr("limit", 0),
                                                    real_attr("alpha", 1)};

struct BiasedExperts {
  static constexpr const char* kind = "biased_experts";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "as experts, with biases in front of activations that may be bounded";
  static constexpr OperandDef operands[] = {{"x"},    {"index"},   {"weight"},          {"up"},
                                            {"down"}, {"up_bias"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = bounded_experts_attrs;
  static void rule(RuleOf<BiasedExperts> s);
  static void gradient(GradientOf<BiasedExperts> g);
  static void cost(ShapeOf<BiasedExperts> s, OpCost& c);
};

struct BiasedExpertsGrad {
  static constexpr const char* kind = "biased_experts_grad";
  static constexpr const char* help = "dx and dweight of biased_experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"up_bias"},
                                            {"dy"},
                                            {"dx", Access::write},
                                            {"dweight", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = bounded_experts_attrs;
  static void rule(RuleOf<BiasedExpertsGrad> s);
  static void cost(ShapeOf<BiasedExpertsGrad> s, OpCost& c);
};

struct BiasedExpertsWeightGrad {
  static constexpr const char* kind = "biased_experts_weight_grad";
  static constexpr const char* help = "dup, ddown and dup_bias of biased_experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"up_bias"},
                                            {"dy"},
                                            {"dup", Access::update, true},
                                            {"ddown", Access::update, true},
                                            {"dup_bias", Access::update, true}};
  static constexpr const AttrDef (&attrs)[3] = bounded_experts_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<BiasedExpertsWeightGrad> s);
  static void cost(ShapeOf<BiasedExpertsWeightGrad> s, OpCost& c);
};

struct ExpertBiases {
  static constexpr const char* kind = "expert_biases";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the biases of each position's experts, weighted and added up";
  static constexpr OperandDef operands[] = {{"index"}, {"weight"}, {"bias"}, {"y", Access::write}};
  static void rule(RuleOf<ExpertBiases> s);
  static void gradient(GradientOf<ExpertBiases> g);
};

struct ExpertBiasesGrad {
  static constexpr const char* kind = "expert_biases_grad";
  static constexpr const char* help = "dweight of expert_biases";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight"}, {"bias"}, {"dy"}, {"dweight", Access::write}};
  static void rule(RuleOf<ExpertBiasesGrad> s);
};

struct ExpertBiasesWeightGrad {
  static constexpr const char* kind = "expert_biases_weight_grad";
  static constexpr const char* help = "dbias of expert_biases";
  static constexpr OperandDef operands[] = {
      {"index"}, {"weight"}, {"bias"}, {"dy"}, {"dbias", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ExpertBiasesWeightGrad> s);
};

}  // namespace prun::ops
