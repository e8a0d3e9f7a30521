// Removes copies around collectives along a dimension. Such a collective works on blocks, one for each rank.
// If a rank's block is contiguous in the value anyway, or consists of a few large pieces, the collective can
// read or write the value directly. Example: an all-gather along the first dimension needs no copy; along
// another one it needs one if pieces have less than 1 MiB.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Needs the placement of all values on all axes.
void exchange_directly(Program& program);

}  // namespace prun
