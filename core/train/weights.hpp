// How parameters start.
#pragma once

#include "assemble/assembly.hpp"
#include "execute/plan_memory.hpp"

namespace prun {

// Fills parameters (and master copies) from the seed and their names; optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory);

}  // namespace prun
