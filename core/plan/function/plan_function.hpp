// Plans one function: chooses a kernel for each op, divides ops into pieces by queue, and gives every operand
// an address. Example: a block's forward may be 14 steps in one piece for the compute queue; with `tp` an
// all-reduce splits it into compute, communicate, compute. Addresses are relative: one planned function
// serves all layers and microbatches.
#pragma once

#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"

namespace prun {

// Values without an allocation are scratch. `around`: for adjacent values the address range of all of them.
// `delay`: the function reads parameters so many updates old; -1: those of the program. Adds new queues and
// ranges to the plan.
PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Allocations& around,
                              Id segment, FunctionKind kind, std::int32_t delay, Plan& plan);

}  // namespace prun
