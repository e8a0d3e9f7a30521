// Finds which step is the last to use bytes that outlive its function: after it they are dead, and their next
// user waits for it.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Marks sums of gradients. It needs plan.functions and plan.instances.
void mark_dead_sums(const Program& program, Plan& plan);
// Marks what a microbatch's forward keeps for its backward. It needs plan.functions.
void mark_dead_slots(const Program& program, Plan& plan);

}  // namespace prun
