// SPDX-License-Identifier: Apache-2.0
// The op dropout zeroes elements with probability p and scales the rest by 1 / (1 - p). Which elements
// depends on (seed, layer, stream, sample number, position, channel) alone, so that every layout, and a
// resumed run, drops the same ones. Its gradient is the same op.
#pragma once

#include "prun/named_operands.hpp"
#include "prun/ops/shared_operands.hpp"

namespace prun::ops {

struct Dropout {
  static constexpr const char* kind = "dropout";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "zeroes elements by a counter-based draw";
  static constexpr OperandDef operands[] = {
      {"x"}, {"samples"}, {"seed"}, {"y", Access::write}, positions_operand};
  // `stream` distinguishes the dropouts of one segment by its low 16 bits, and those of segments by the rest,
  // the number of layers before them.
  static constexpr AttrDef attrs[] = {real_attr("p", 0.0), int_attr("stream", 0)};
  static constexpr const char* noise = "p";
  static void rule(RuleOf<Dropout> s);
  static void gradient(GradientOf<Dropout> g);
};

}  // namespace prun::ops
