// Names calls in traces, flight records and messages: "forward block.3 mb 1".
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace prun {

std::string call_text(const Program& program, const Plan& plan, const Call& call);

// Returns, for a call that communicates, a text such as "all_reduce dp.reduce 3.10 MiB".
std::string call_name(const Program& program, const Plan& plan, const Call& call);

}  // namespace prun
