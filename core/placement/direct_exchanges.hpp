// Exchanges along a dimension work on blocks, one for each rank. Where a block lies in one piece anyway, or
// in few large ones, which travel as operations of one exchange, nobody has to copy it.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Blocks that only stand between a value and its exchange fall away. Needs to know how values lie on all
// axes.
void exchange_directly(Program& program);

}  // namespace prun
