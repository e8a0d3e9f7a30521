// Saves copies into blocks, one for each rank, which exchanges along a dimension work on. Where a block is
// contiguous anyway, or in few large pieces that travel as operations of one exchange, no copy is needed.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Removes copies into blocks between a value and its exchange. It needs the placement of values on all axes.
void exchange_directly(Program& program);

}  // namespace prun
