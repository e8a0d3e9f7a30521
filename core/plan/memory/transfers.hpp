// Plans functions that pass values from stage to stage, between two instances that different ranks hold.
#pragma once

#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Adds the queue for the exchange with the rank that holds the other copy of a parameter, if there is one.
void add_tie_queue(const Program& program, const Work& work, Plan& plan);
// Plans transfers; each way between two stages has a queue of its own, so that nothing waits for what it does
// not need. It needs plan.chunks, plan.instances and plan.homes.
void plan_transfers(const Program& program, const Work& work, Plan& plan);

}  // namespace prun
