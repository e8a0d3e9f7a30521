// Orders calls where several microbatches go through the chain side by side.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Puts the calls of a plan, which are in a valid order with all memory placed, into one in which the compute
// queue has work while exchanges travel. Calls that touch the same bytes keep their order, so that sums are
// added up as before. The order is the same on all ranks that run the same program: it uses nominal times,
// and ignores what depends on a rank's threads.
void order_side_by_side(const Program& program, Plan& plan);

}  // namespace prun
