// Moves values that are stored elsewhere than in the memory of the device that computes with them: a strategy
// says where (ProgramApi::place), and the moves follow from it.
#pragma once

#include "placement/leaving_gradients.hpp"

namespace prun {

// Derives the moves, after strategies of phase `memory`. `free_updates` says that a layer's update need not
// wait for the norm; it does not wait if all gradients leave. Throws an Error that says what cannot be stored
// where it is requested, and why.
void derive_moves(Program& program, GradientParts parts, bool free_updates);

}  // namespace prun
