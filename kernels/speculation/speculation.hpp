// SPDX-License-Identifier: Apache-2.0
// Defines what updates need that begin before the norm of all gradients is known (FunctionKind::speculate):
// the state as it was is kept beside, and put back where the norm turns out to be beyond the limit, or the
// step is not kept. For example, with `old` copies of m, v and the weights:
//   speculate  begin_speculation -> did;  keep_old of each;          adamw with keep = did, clip = did
//   settle     settle_update -> restore, redo;  restore_old of each;  adamw with keep = redo, clip = clip
// Most steps are within the limit: then `settle` does nothing. The step after one beyond it updates once,
// since such steps come in rows.
#pragma once

#include "prun/named_operands.hpp"

namespace prun::ops {

// Runtime scalars are fp64 here. `did` is 1 once `speculate` has updated, until `settle` has seen it.
struct BeginSpeculation {
  static constexpr const char* kind = "begin_speculation";
  static constexpr const char* help = "did = halt and beyond, of the step before, are 0";
  static constexpr OperandDef operands[] = {{"halt"}, {"beyond"}, {"did", Access::write}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<BeginSpeculation> s);
};

struct KeepOld {
  static constexpr const char* kind = "keep_old";
  static constexpr const char* help = "where did is not 0: old = x";
  static constexpr OperandDef operands[] = {{"x"}, {"did"}, {"old", Access::write}};
  static void rule(RuleOf<KeepOld> s);
};

struct SettleUpdate {
  static constexpr const char* kind = "settle_update";
  static constexpr const char* help =
      "restore = did, unless keep is not 0 and clip is 1; redo = keep, unless did and clip is 1; beyond = "
      "clip "
      "is not 1; did = 0";
  static constexpr OperandDef operands[] = {{"keep"},
                                            {"clip"},
                                            {"did", Access::update},
                                            {"beyond", Access::write},
                                            {"restore", Access::write},
                                            {"redo", Access::write}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<SettleUpdate> s);
};

struct RestoreOld {
  static constexpr const char* kind = "restore_old";
  static constexpr const char* help = "where restore is not 0: x = old";
  static constexpr OperandDef operands[] = {{"old"}, {"restore"}, {"x", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(RuleOf<RestoreOld> s);
  static void cost(ShapeOf<RestoreOld> s, OpCost& c);
};

}  // namespace prun::ops
