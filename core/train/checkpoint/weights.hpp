// Initializes parameters.
#pragma once

#include <set>

#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

// Fills parameters (and master copies) from `start` or, if that lacks them, from the seed and their names;
// optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start = nullptr);
// Fills only those parameters, from the seed, and zeroes what an optimizer keeps beside them.
void initialize_new(const Assembly& assembly, const PlanMemory& memory, const std::set<Id>& parameters);
// Initializes what no checkpoint holds (Value::in_base).
void initialize_base(const Assembly& assembly, const PlanMemory& memory, const StartValues& base);

}  // namespace prun
