// SPDX-License-Identifier: Apache-2.0
// experts: each position's x goes through the MLPs that it has chosen, and their results come together with
// its weights:
//   y = sum over choices c of weight[c] * down[e] * swiglu(up[e] * x), e = index[c]
// No choice is dropped: there are as many rows as choices, whatever the router says. Rows are put in the
// order of their experts within the op, and each position adds its own in the order of its choices, so that
// no sum depends on when it is computed. An expert that this rank does not hold is another's: what its ranks
// have are summands. Backward keeps x, the choices and, in the device's own order of rows, `kept`: what went
// into the activations; where that is left out, it computes it again. Its halves are apart, so that a
// schedule may move the weights' gradients; experts_grads is for devices that do both in one.
//
// x may also be rows that ranks have sent each other (kernels/rows/rows.cpp): [experts, batch, rows, hidden],
// its choices and weights alike. They lie where their experts do, so that nothing is a summand of other
// ranks, and nothing is kept of them.
//
// In biased_experts projections have biases, and activations may be bounded, as in gpt-oss:
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

// `experts` counts those of all ranks: a rank's part of the work follows from it. Of rows, some are empty:
// those of a sequence come from so many `positions`.
inline constexpr AttrDef experts_attrs[] = {int_attr("experts", 0), later(int_attr("positions", 0))};

struct Experts {
  static constexpr const char* kind = "experts";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the MLPs that each position has chosen, weighted and added up";
  static constexpr OperandDef operands[] = {
      {"x"}, {"index"}, {"weight"}, {"up"}, {"down"}, {"y", Access::write}, {"kept", Access::write, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attrs;
  static void rule(RuleOf<Experts> s);
  static void gradient(GradientOf<Experts> g);
  static void cost(ShapeOf<Experts> s, OpCost& c);
};

struct ExpertsGrad {
  static constexpr const char* kind = "experts_grad";
  static constexpr const char* help = "dx and dweight of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dx", Access::write},
                                            {"dweight", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = experts_attrs;
  static void rule(RuleOf<ExpertsGrad> s);
  static void cost(ShapeOf<ExpertsGrad> s, OpCost& c);
};

struct ExpertsWeightGrad {
  static constexpr const char* kind = "experts_weight_grad";
  static constexpr const char* help = "dup and ddown of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dup", Access::update, true},
                                            {"ddown", Access::update, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ExpertsWeightGrad> s);
  static void cost(ShapeOf<ExpertsWeightGrad> s, OpCost& c);
};

struct ExpertsGrads {
  static constexpr const char* kind = "experts_grads";
  static constexpr const char* help = "dx, dweight, dup and ddown of experts";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"index"},
                                            {"weight"},
                                            {"up"},
                                            {"down"},
                                            {"dy"},
                                            {.name = "kept", .optional = true},
                                            {"dx", Access::write},
                                            {"dweight", Access::write},
                                            {"dup", Access::update, true},
                                            {"ddown", Access::update, true}};
  static constexpr const AttrDef (&attrs)[2] = experts_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<ExpertsGrads> s);
  static void cost(ShapeOf<ExpertsGrads> s, OpCost& c);
};

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
