// Decides which call begins each gradient of a carried value.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Lets, for each microbatch, what comes from the later stage, or else the first op on this rank that adds to
// it, begin the sum. Throws unsupported if that op's kernel cannot.
void begin_carried_sums(const Program& program, Plan& plan);

}  // namespace prun
