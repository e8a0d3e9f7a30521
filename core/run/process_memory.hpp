// A rank's memory besides its plan: what it needs, stated in advance, and what the whole process has had.
#pragma once

#include <vector>

#include "prun/observer.hpp"
#include "run/communicators.hpp"

namespace prun {

// What every process has besides its arena: code, libraries, stacks, the recipe, the program and its plans.
inline constexpr std::int64_t base_process_bytes = std::int64_t{10} << 20;

// The same of one rank, with what its comm plugins state.
std::int64_t process_need(const Assembly& assembly, PluginHost& plugins, std::int64_t rank);

// Refuses ranks that all run on this machine where it has not the memory for all of them.
void check_fits_one_host(const Assembly& assembly);

// Collective: every rank's memory up to now. `exchange` may be empty for one rank alone.
std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange);

}  // namespace prun
