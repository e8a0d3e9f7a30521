// Describes a deadlock: which queues wait for which.
#pragma once

#include <string>

#include "plan/proof/channels.hpp"
#include "plan/proof/feeders.hpp"

namespace prun {

// Returns a line for each waiting feeder and queue, or the first of them. `feeders` is null without queue
// limits.
std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Feeders* feeders = nullptr);

}  // namespace prun
