// Rewrites ops that want a dimension whole which is sharded on mesh axes: those that can be expressed in ops
// that can be split (OpDef::split) are replaced by these. `lm_head` is one, along the vocabulary.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Is called after add_backward and before place_on_mesh's axes. The ops still write the same values.
void split_ops(Program& program);

// Rewrites likewise each op that computes its gradients in forward, along any dimension that it wants whole:
// so that its loss can be computed without them.
void take_heads_apart(Program& program);

}  // namespace prun
