// Replaces ops that need a dimension whole which is to be sharded, if the op can be written as ops that can
// be sharded (OpDef::split). Example: `lm_head` needs the whole vocabulary for its softmax. With `vocab`
// split it becomes local logits, a maximum and a sum over the ranks, and the gradient of local logits.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Runs after add_backward, before placement. New ops write the same values.
void split_ops(Program& program);

// Splits every op with gradients in forward, along any dimension it needs whole, so that its loss can be
// computed without gradients.
void take_heads_apart(Program& program);

}  // namespace prun
