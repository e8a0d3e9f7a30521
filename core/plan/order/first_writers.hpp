// Decides which contribution begins a sum: it writes, and no call has to clear what it adds to.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Takes each sum that a function `zero` or `clear` clears, for as long as it is one sum: a step, or from one
// clear to the next. If in each of them the first call that adds to it has a kernel that can write instead,
// it is told to (Call::first), and the plan clears no more. It needs the final order of calls; what is left
// empty is taken out of functions, calls and queues.
void choose_first_writers(const Program& program, Plan& plan);

}  // namespace prun
