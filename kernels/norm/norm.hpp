// SPDX-License-Identifier: Apache-2.0
// Defines layernorm over the last dimension and rmsnorm over the last `dims`. The statistics backward needs
// are kept beside the result, in fp32 (fp64 where the values are fp64). rmsnorm multiplies by offset + gain.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

inline constexpr AttrDef eps_attr[] = {real_attr("eps", 1e-5)};

inline constexpr AttrDef rms_attrs[] = {real_attr("eps", 1e-5), later(real_attr("offset", 0.0)),
                                        later(int_attr("dims", 1))};

inline constexpr AttrDef rms_input_grad_attrs[] = {later(real_attr("offset", 0.0)),
                                                   later(int_attr("dims", 1))};

inline constexpr AttrDef rms_weight_grad_attrs[] = {later(int_attr("dims", 1))};

struct LayerNorm {
  static constexpr const char* kind = "layernorm";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = (x - mean) / sqrt(variance + eps) * gain + bias";
  static constexpr OperandDef operands[] = {{"x"},
                                            {"gain"},
                                            {"bias", Access::read, true},
                                            {"y", Access::write},
                                            {"mean", Access::write},
                                            {"rstd", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = eps_attr;
  static void rule(RuleOf<LayerNorm> s);
  static void gradient(GradientOf<LayerNorm> g);
};

struct LayerNormInputGrad {
  static constexpr const char* kind = "layernorm_input_grad";
  static constexpr const char* help = "dx of layernorm, with the gradient that passed it by added";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"gain"}, {"mean"}, {"rstd"}, {"residual", Access::read, true}, {"dx", Access::write}};
  static void rule(RuleOf<LayerNormInputGrad> s);
};

struct LayerNormWeightGrad {
  static constexpr const char* kind = "layernorm_weight_grad";
  static constexpr const char* help = "dgain and dbias of layernorm";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"mean"}, {"rstd"}, {"dgain", Access::update, true}, {"dbias", Access::update, true}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<LayerNormWeightGrad> s);
};

struct RmsNorm {
  static constexpr const char* kind = "rmsnorm";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = x / sqrt(mean(x^2) + eps) * (offset + gain)";
  static constexpr OperandDef operands[] = {{"x"}, {"gain"}, {"y", Access::write}, {"rstd", Access::write}};
  static constexpr const AttrDef (&attrs)[3] = rms_attrs;
  static void rule(RuleOf<RmsNorm> s);
  static void gradient(GradientOf<RmsNorm> g);
};

struct RmsNormInputGrad {
  static constexpr const char* kind = "rmsnorm_input_grad";
  static constexpr const char* help = "dx of rmsnorm, with the gradient that passed it by added";
  static constexpr OperandDef operands[] = {
      {"dy"}, {"x"}, {"gain"}, {"rstd"}, {"residual", Access::read, true}, {"dx", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = rms_input_grad_attrs;
  static void rule(RuleOf<RmsNormInputGrad> s);
};

struct RmsNormWeightGrad {
  static constexpr const char* kind = "rmsnorm_weight_grad";
  static constexpr const char* help = "dgain of rmsnorm";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"rstd"}, {"dgain", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = rms_weight_grad_attrs;
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<RmsNormWeightGrad> s);
};

}  // namespace prun::ops
