// Which contribution begins a sum: it writes, and nobody has to clear what it adds to.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Looks at every sum that a function `zero` or `clear` clears, for as long as it is one: a step, or from one
// clear to the next. Where the first call that adds to it has a kernel that can write instead, in each of
// them, it is told to (Call::first), and the plan clears no more. Needs the final order of calls; what
// nothing is left of is taken out of functions, calls and queues.
void choose_first_writers(const Program& program, Plan& plan);

}  // namespace prun
