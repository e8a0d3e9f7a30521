// SPDX-License-Identifier: Apache-2.0
// Defines add, scale and cast, the linear ops, through which partial sums pass. accumulate adds a value into
// the gradient of a parameter that is used as it is. reciprocal and choose are for runtime scalars.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct Add {
  static constexpr const char* kind = "add";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = a + b";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(RuleOf<Add> s);
  static void gradient(GradientOf<Add> g);
};

struct Scale {
  static constexpr const char* kind = "scale";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = factor * x";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("factor", 1.0)};
  static void rule(RuleOf<Scale> s);
  static void gradient(GradientOf<Scale> g);
};

struct Cast {
  static constexpr const char* kind = "cast";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "the same numbers in another type (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("to", 1), int_attr("from", 1)};
  static constexpr bool converts = true;
  static void rule(RuleOf<Cast> s);
  static void gradient(GradientOf<Cast> g);
};

struct Accumulate {
  static constexpr const char* kind = "accumulate";
  static constexpr const char* help = "sum += x";
  static constexpr OperandDef operands[] = {{"x"}, {"sum", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<Accumulate> s);
};

struct Reciprocal {
  static constexpr const char* kind = "reciprocal";
  static constexpr const char* help = "y = 1 / x of a number in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<Reciprocal> s);
};

struct Multiply {
  static constexpr const char* kind = "multiply";
  static constexpr const char* help = "y = a * b of numbers in fp64";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(RuleOf<Multiply> s);
};

struct Choose {
  static constexpr const char* kind = "choose";
  static constexpr const char* help = "y = a where the number `which` is not 0, else b, all in fp64";
  static constexpr OperandDef operands[] = {{"which"}, {"a"}, {"b"}, {"y", Access::write}};
  static void rule(RuleOf<Choose> s);
};

}  // namespace prun::ops
