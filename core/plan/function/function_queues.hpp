// Decides which queues a function's steps run in.
#pragma once

#include <vector>

#include "plan/function/reach.hpp"
#include "plan/plan.hpp"

namespace prun {

// Cuts the steps where the queue changes, and `finely` also behind each step that takes a good part of the
// function's time, so that calls of others can stand in between. Adds to `queues` those that are not there
// yet.
std::vector<Piece> divide_by_queue(const Program& program, const Reach& reach,
                                   const PlannedFunction& function, bool finely,
                                   std::vector<QueueInfo>& queues);

}  // namespace prun
