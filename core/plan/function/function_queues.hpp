// Which queues a function's steps run in.
#pragma once

#include <vector>

#include "plan/function/reach.hpp"
#include "plan/plan.hpp"

namespace prun {

// Cuts the steps where the queue changes. Adds to `queues` those that there are not yet.
std::vector<Piece> divide_by_queue(const Program& program, const Reach& reach,
                                   const PlannedFunction& function, std::vector<QueueInfo>& queues);

}  // namespace prun
