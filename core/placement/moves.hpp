// Values that lie elsewhere than in the memory of the device that computes with them: a strategy says where
// (ProgramApi::place), and what is moved when follows from it.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// How the microbatches of a step add to a layer's gradients.
enum class GradientParts : std::uint8_t {
  one,        // there is one
  in_a_row,   // nothing else adds to others meanwhile
  far_apart,  // in between, each adds to those of all layers
};

// After strategies of phase `memory`. `free_updates`: a layer's update need not wait for the norm, and does
// not where all gradients leave. Throws an Error that says what cannot lie where it is to, and why.
void derive_moves(Program& program, GradientParts parts, bool free_updates);

// After devices have lowered the program, which decides what backward reads of forward.
void derive_saved_moves(Program& program);

}  // namespace prun
