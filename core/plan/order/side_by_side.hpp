// Orders calls where several microbatches go through the chain side by side.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Puts the calls of a plan, which are in a valid order with all memory placed, into one in which the compute
// queue has work while exchanges travel. What touches the same bytes keeps its order, so that sums are added
// up as before. The same on all ranks that run the same program: it goes by nominal times, and does not look
// at what depends on a rank's threads.
void order_side_by_side(const Program& program, Plan& plan);

}  // namespace prun
