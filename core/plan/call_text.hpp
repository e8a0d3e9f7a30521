// Writes a call in words, for flight records, traces and messages.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace prun {

// Returns a text such as "forward block.3 mb 1".
std::string call_text(const Program& program, const Plan& plan, const Call& call);

// Returns the same or, for an exchange, a text such as "all_reduce dp.reduce 3.10 MiB".
std::string call_name(const Program& program, const Plan& plan, const Call& call);

}  // namespace prun
