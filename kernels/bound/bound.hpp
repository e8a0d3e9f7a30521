// SPDX-License-Identifier: Apache-2.0
// halt_beyond: a step that needed more of something than was planned for is masked as one that the host
// halts.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

struct HaltBeyond {
  static constexpr const char* kind = "halt_beyond";
  static constexpr const char* help = "halt = 1 where needed[layer, 0] > needed[layer, 1] for any layer";
  static constexpr OperandDef operands[] = {{"needed"}, {"halt", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<HaltBeyond> s);
};

}  // namespace prun::ops
