// Functions that read older versions of parameters (schedules `2bw` and `pipedream`). Example: on stage 0 of
// 3 `pipedream` runs forward with `weight.before2`, two updates old.
#pragma once

#include "plan/plan.hpp"

namespace prun {

bool reads_before(const Program& program, const PlannedFunction& function);

// Makes a function read parameters that are so many updates old; 0: current ones.
void read_with_age(const Program& program, const Plan& plan, std::int64_t updates, PlannedFunction& function);

}  // namespace prun
