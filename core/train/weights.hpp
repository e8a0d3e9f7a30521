// Persistent values seen by the host: how parameters start, and their way into files and back.
#pragma once

#include <filesystem>

#include "assemble/assembly.hpp"
#include "execute/communicators.hpp"
#include "execute/plan_memory.hpp"

namespace prun {

// Fills parameters (and master copies) from the seed and their names; optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory);

// "'block.1.qkv.weight' on rank 1": the first parameter whose gradient is not finite, of the lowest rank that
// has one; empty where none has. Every rank calls it; `exchange` is null for one rank alone.
std::string first_non_finite_gradient(const Assembly& assembly, const PlanMemory& memory,
                                      const Exchange& exchange);

}  // namespace prun
