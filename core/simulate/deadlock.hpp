// Who waits for whom, where nobody can go on.
#pragma once

#include <string>

#include "simulate/channels.hpp"
#include "simulate/feeders.hpp"

namespace prun {

// Returns a line for each feeder and each queue that is held up, or for the first of them. `feeders` is null
// where nothing but its waits holds a queue up.
std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Feeders* feeders = nullptr);

}  // namespace prun
