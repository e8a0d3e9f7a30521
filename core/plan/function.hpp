// Plans one function: a kernel for each op, an address for each operand, scratch shared by lifetime.
#pragma once

#include <map>

#include "plan/packing.hpp"
#include "plan/plan.hpp"

namespace prun {

// Where values of roles other than scratch live: filled by the planner before functions are planned.
struct Homes {
  std::map<Id, Address> of;
  std::map<Id, Address> around;  // of values that lie side by side with others: the range of all of them
};

// Adds to `queues` the communicators it needs.
PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& homes,
                              Id segment, FunctionKind kind, std::vector<QueueInfo>& queues);

}  // namespace prun
