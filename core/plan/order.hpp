// The sequence of calls of a step.
#pragma once

#include "plan/turns.hpp"

namespace prun {

// The passes of each microbatch in the order that the work says, with what goes from stage to stage around
// them, then the update. Microbatches are brought in one ahead; parameters kept in parts are gathered one use
// ahead; an instance's gradients are summed over the ranks as soon as they are complete.
// Needs plan.functions, plan.instances, plan.chunks and plan.queues; fills calls, and how many microbatches
// of a chunk are alive at once. Which call waits for which is plan/waits.hpp.
void order_calls(const Work& work, const GatheredUses& uses, const Turns& gathered, Plan& plan);

}  // namespace prun
