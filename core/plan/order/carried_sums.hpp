// Decides who begins each gradient of a carried value.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Of each microbatch, what comes from the stage behind or else the first to add to it on this rank begins the
// sum. Throws unsupported where that one's kernel cannot.
void begin_carried_sums(const Program& program, Plan& plan);

}  // namespace prun
