// Offloads activations: what backward reads of a segment's forward is stored elsewhere in between
// (`activations = "host"`). Example: with `host:60, device:40` the largest saved tensor goes to the host, the
// next to whichever place is then further below its share. `put_away` copies it after forward, `bring_back`
// fetches it before backward.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Runs after devices have lowered the program, which decides what backward reads.
void derive_saved_moves(Program& program);

}  // namespace prun
