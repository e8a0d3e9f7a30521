// Reports the memory that ranks have used, beside what was planned.
#pragma once

#include <vector>

#include "execute/communicators.hpp"
#include "prun/observer.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Returns, collectively, every rank's memory up to now. `exchange` may be empty for one rank alone.
std::vector<RankMemory> memory_of_ranks(const Assembly& assembly, const Exchange& exchange);

}  // namespace prun
