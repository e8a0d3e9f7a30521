// Estimates what a step takes on a machine that was not measured.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Returns the time by which calls are ordered where several could come next, so it must be the same on all
// ranks: a measured time would not be. Nothing that is reported to people depends on it.
double nominal_seconds(const Program& program, const PlannedStep& step);

}  // namespace prun
