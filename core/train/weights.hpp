// How parameters start.
#pragma once

#include "assemble/assembly.hpp"
#include "execute/plan_memory.hpp"
#include "train/start_values.hpp"

namespace prun {

// Fills parameters (and master copies) from `start` or, where there is none, from the seed and their names;
// optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start = nullptr);

// The host's threads that a rank may use while no step runs: where the device does not compute on the host's
// cores, all of them are idle, and the ranks of the host share them.
std::size_t host_threads(const DeviceInfo& device, std::int64_t world);

}  // namespace prun
