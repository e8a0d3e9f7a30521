// The sequence of calls of a step.
#pragma once

#include "plan/plan.hpp"

namespace prun {

enum : std::int32_t { compute_queue = 0, copy_queue = 1 };

// One rank, no pipeline: each microbatch forward through the chain and back, then the update. Microbatches
// are brought in on the copy queue, one ahead. Needs plan.functions and plan.instances; fills queues and
// calls.
void order_calls(Plan& plan);

}  // namespace prun
