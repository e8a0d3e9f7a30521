// Estimates the time of a step without measurements, to order calls. Example: with batch.interleave, whether
// microbatch 1's attention or microbatch 0's MLP runs first depends on these times.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Returns the same on all ranks, which a measured time would not be. Nothing reported to users depends on it.
double nominal_seconds(const Program& program, const PlannedStep& step);

}  // namespace prun
