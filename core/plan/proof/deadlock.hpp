// Describes which queues wait for which, when none can go on.
#pragma once

#include <string>

#include "plan/proof/channels.hpp"
#include "plan/proof/feeders.hpp"

namespace prun {

// Returns a line for each feeder and each queue that waits, or for the first of them. `feeders` is null if
// queues wait only as their plans say.
std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Feeders* feeders = nullptr);

}  // namespace prun
