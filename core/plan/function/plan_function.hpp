// Plans one function: a kernel for each op, an address for each operand, scratch shared by lifetime.
#pragma once

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// Plans a function; values without a home in the plan are its scratch. `around` has, for values that lie side
// by side with others, the bytes of all of them. `delay` is that of instances whose passes read parameters of
// so many updates before; -1 means that all have the program's. Adds to the plan the queues and ranges it
// needs.
PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& around,
                              Id segment, FunctionKind kind, std::int32_t delay, Plan& plan);

}  // namespace prun
