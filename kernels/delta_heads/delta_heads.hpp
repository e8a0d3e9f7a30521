// SPDX-License-Identifier: Apache-2.0
// Defines what stands around the gated delta rule: three ops. split_mixed takes a projection apart that has,
// of each key head, what passes the short convolution and, behind it, the gate of what the head gives.
// delta_heads takes the former apart into a query, a key, both of length 1, and values. delta_gates gives
// decay and share from numbers of their own.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef heads_attrs[] = {int_attr("key_dim", 1), int_attr("values", 1),
                                          real_attr("eps", 1e-6)};

inline constexpr AttrDef mixed_attrs[] = {int_attr("channels", 1), int_attr("values", 1)};

struct SplitMixed {
  static constexpr const char* kind = "split_mixed";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "what passes the convolution, and the gates, out of one projection";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}, {"gate", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = mixed_attrs;
  static void rule(RuleOf<SplitMixed> s);
  static void gradient(GradientOf<SplitMixed> g);
};

struct JoinMixed {
  static constexpr const char* kind = "join_mixed";
  static constexpr const char* help = "what split_mixed took apart, together: its gradient's way back";
  static constexpr OperandDef operands[] = {{"y"}, {"gate"}, {"x", Access::write}};
  static void rule(RuleOf<JoinMixed> s);
};

struct DeltaHeads {
  static constexpr const char* kind = "delta_heads";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "a query and a key, each x / sqrt(sum(x^2) + eps), and values of each head";
  static constexpr OperandDef operands[] = {
      {"x"}, {"q", Access::write}, {"k", Access::write}, {"v", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = heads_attrs;
  static void rule(RuleOf<DeltaHeads> s);
  static void gradient(GradientOf<DeltaHeads> g);
};

struct DeltaHeadsGrad {
  static constexpr const char* kind = "delta_heads_grad";
  static constexpr const char* help = "dx of delta_heads";
  static constexpr OperandDef operands[] = {{"dq"}, {"dk"}, {"dv"}, {"x"}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = heads_attrs;
  static void rule(RuleOf<DeltaHeadsGrad> s);
};

struct DeltaGates {
  static constexpr const char* kind = "delta_gates";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "beta = sigmoid(x[.., :n]), g = -exp(rate) softplus(x[.., n:] + bias): shares and decays of n values";
  static constexpr OperandDef operands[] = {
      {"x"}, {"rate"}, {"bias"}, {"g", Access::write}, {"beta", Access::write}};
  static void rule(RuleOf<DeltaGates> s);
  static void gradient(GradientOf<DeltaGates> g);
};

struct DeltaGatesInputGrad {
  static constexpr const char* kind = "delta_gates_input_grad";
  static constexpr const char* help = "dx of delta_gates";
  static constexpr OperandDef operands[] = {{"dg"},   {"dbeta"}, {"x"},
                                            {"rate"}, {"bias"},  {"dx", Access::write}};
  static void rule(RuleOf<DeltaGatesInputGrad> s);
};

struct DeltaGatesWeightGrad {
  static constexpr const char* kind = "delta_gates_weight_grad";
  static constexpr const char* help = "drate and dbias of delta_gates";
  static constexpr OperandDef operands[] = {
      {"dg"}, {"x"}, {"rate"}, {"bias"}, {"drate", Access::update, true}, {"dbias", Access::update, true}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<DeltaGatesWeightGrad> s);
};

}  // namespace prun::ops
