// Decides which call waits for which.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Adds the fewest waits that keep every use of a byte behind the uses it must follow, also those of the step
// before. Each queue runs its calls in order; only waits order calls of different queues. The calls are given
// in an order that would be right one after the other. It needs a plan with its layout.
void derive_waits(const Program& program, Plan& plan);

}  // namespace prun
