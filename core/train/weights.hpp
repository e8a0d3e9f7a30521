// Persistent values seen by the host: how parameters start, and their way into files and back.
#pragma once

#include <filesystem>

#include "assemble/assembly.hpp"
#include "execute/plan_memory.hpp"

namespace prun {

// Fills parameters (and master copies) from the seed and their names; optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory);

// Name of the first parameter whose gradient is not finite, or empty.
std::string first_non_finite_gradient(const Assembly& assembly, const PlanMemory& memory);

}  // namespace prun
