// SPDX-License-Identifier: Apache-2.0
// Defines gelu (tanh form, as GPT-2), gelu_erf (as BERT), swiglu (silu(gate) * up, as Llama), geglu
// (gelu(gate) * up, as Gemma) and geglu_erf (as ModernBERT).
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct Gelu {
  static constexpr const char* kind = "gelu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<Gelu> s);
  static void gradient(GradientOf<Gelu> g);
};

struct GeluGrad {
  static constexpr const char* kind = "gelu_grad";
  static constexpr const char* help = "dx of gelu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<GeluGrad> s);
};

struct GeluErf {
  static constexpr const char* kind = "gelu_erf";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "0.5 x (1 + erf(x / sqrt(2)))";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<GeluErf> s);
  static void gradient(GradientOf<GeluErf> g);
};

struct GeluErfGrad {
  static constexpr const char* kind = "gelu_erf_grad";
  static constexpr const char* help = "dx of gelu_erf";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<GeluErfGrad> s);
};

struct SwiGlu {
  static constexpr const char* kind = "swiglu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "silu(x[..., 0, :]) * x[..., 1, :]";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<SwiGlu> s);
  static void gradient(GradientOf<SwiGlu> g);
};

struct SwiGluGrad {
  static constexpr const char* kind = "swiglu_grad";
  static constexpr const char* help = "dx of swiglu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<SwiGluGrad> s);
};

struct GeGlu {
  static constexpr const char* kind = "geglu";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "gelu(x[..., 0, :]) * x[..., 1, :], gelu in its tanh form";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<GeGlu> s);
  static void gradient(GradientOf<GeGlu> g);
};

struct GeGluGrad {
  static constexpr const char* kind = "geglu_grad";
  static constexpr const char* help = "dx of geglu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<GeGluGrad> s);
};

struct GeGluErf {
  static constexpr const char* kind = "geglu_erf";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "gelu_erf(x[..., 0, :]) * x[..., 1, :]";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<GeGluErf> s);
  static void gradient(GradientOf<GeGluErf> g);
};

struct GeGluErfGrad {
  static constexpr const char* kind = "geglu_erf_grad";
  static constexpr const char* help = "dx of geglu_erf";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<GeGluErfGrad> s);
};

}  // namespace prun::ops
