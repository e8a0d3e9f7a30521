// Which call waits for which.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Each queue runs its calls in order; the queues know nothing of each other but for waits. Given the calls in
// an order that would be right one after the other, adds the fewest waits that keep every use of a byte
// behind the uses it must follow, also those of the step before. Needs a plan with its layout.
void derive_waits(const Program& program, Plan& plan);

}  // namespace prun
