// Moves what backward reads of a segment's forward, if that is stored elsewhere meanwhile: it is shared out
// over places by whole values.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Derives these moves, after devices have lowered the program, which decides what backward reads of forward.
void derive_saved_moves(Program& program);

}  // namespace prun
