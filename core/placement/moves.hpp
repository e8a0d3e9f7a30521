// Moves values that are stored elsewhere than in the memory of the device that computes with them: a strategy
// says where (ProgramApi::place), and the moves follow from it.
#pragma once

#include "placement/leaving_gradients.hpp"

namespace prun {

struct MoveRules {
  GradientParts parts = GradientParts::one;
  // A layer's update need not wait for the norm; it does not wait if all gradients leave.
  bool free_updates = false;
  // Gradients that have left are there until the step ends, and not just until their updates.
  bool keep_gradients = true;
};
// Derives the moves, after strategies of phase `memory`. Throws an Error that says what cannot be stored
// where it is requested, and why.
void derive_moves(Program& program, const MoveRules& rules);

}  // namespace prun
