// Checks that collectives which a comm plugin gets in one list use separate memory: it may run them
// concurrently. Example: an all-gather into the bytes that an all-reduce in the same list still reads is
// refused.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Throws an internal Error that names both.
void check_lists(const Program& program, const Plan& plan);

}  // namespace prun
