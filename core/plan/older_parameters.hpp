// Handles functions that read parameters as they were some updates ago.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Says whether a function reads any such parameter.
bool reads_before(const Program& program, const PlannedFunction& function);

// Makes a function read parameters as they were so many updates ago, whatever it read before; 0 means as they
// are.
void read_with_age(const Program& program, const Plan& plan, std::int64_t updates, PlannedFunction& function);

}  // namespace prun
