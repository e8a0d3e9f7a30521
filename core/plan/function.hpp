// Plans one function: a kernel for each op, an address for each operand, scratch shared by lifetime.
#pragma once

#include "plan/offsets.hpp"
#include "plan/plan.hpp"

namespace prun {

// Values without a home are its scratch. `around`: of values that lie side by side with others, the range of
// all of them. Adds to `queues` the communicators it needs.
PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& homes,
                              const Homes& around, Id segment, FunctionKind kind,
                              std::vector<QueueInfo>& queues);

}  // namespace prun
