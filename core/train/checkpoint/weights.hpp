// How parameters start.
#pragma once

#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

// Fills parameters (and master copies) from `start` or, where there is none, from the seed and their names;
// optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start = nullptr);

}  // namespace prun
