// Describes a rank as simulations see it: its plan, and the ranks that its queues communicate with.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Lists ranks by number, in the order of the members.
using Group = std::shared_ptr<const std::vector<int>>;

struct SimulatedRank {
  const Program* program = nullptr;
  const Plan* plan = nullptr;
  int rank = 0;
  Numbered<Group> groups;  // groups by queue; null: the queue does not communicate
};

// Returns all ranks of the program's mesh, each with its plan.
std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of);

}  // namespace prun
