// Replaces ops that need a dimension whole which is to be sharded, if the op can be written as ops that can
// be sharded (OpDef::split). Example: `lm_head` needs the whole vocabulary for its softmax. With `vocab`
// split it becomes local logits, a maximum and a sum over the ranks, and the gradient of local logits.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- split ops

// Runs after add_backward, before placement. New ops write the same values.
void split_ops(Program& program);

// Splits every op with gradients in forward, along any dimension it needs whole, so that its loss can be
// computed without gradients.
void take_heads_apart(Program& program);

// ------------------------------------------------------------------- direct exchanges
// Removes copies around collectives along a dimension. Such a collective works on blocks, one for each rank.
// If a rank's block is contiguous in the value anyway, or consists of a few large pieces, the collective can
// read or write the value directly. Example: an all-gather along the first dimension needs no copy; along
// another one it needs one if pieces have less than 1 MiB.

// Needs the placement of all values on all axes.
void exchange_directly(Program& program);

}  // namespace prun
