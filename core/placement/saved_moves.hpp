// Moves what backward reads of a segment's forward, where that is stored elsewhere meanwhile: it is shared
// out over places by whole values.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// After devices have lowered the program, which decides what backward reads of forward.
void derive_saved_moves(Program& program);

}  // namespace prun
