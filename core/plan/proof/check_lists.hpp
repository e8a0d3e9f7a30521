// Checks that the exchanges which a comm plugin gets in one list do not touch each other's memory: it may run
// them at once.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Throws an internal Error that names both.
void check_lists(const Program& program, const Plan& plan);

}  // namespace prun
