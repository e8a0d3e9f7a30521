// The sequence of calls of a step.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// No pipeline: each microbatch forward through the chain and back, then the update. Microbatches are brought
// in one ahead; a segment's gradients are summed over the ranks as soon as its last backward is done.
// Needs plan.functions, plan.instances and plan.queues; fills calls. Which call waits for which is
// plan/waits.hpp.
void order_calls(Plan& plan);

}  // namespace prun
