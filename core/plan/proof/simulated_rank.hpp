// A rank as simulations see it: its plan, and the members of each queue's group. Example: rank 5 of a mesh dp
// = 4, pp = 2 has the group {1, 3, 5, 7} for `dp.reduce`.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Ranks by number, in the order of the members.
using Group = std::shared_ptr<const std::vector<int>>;

struct SimulatedRank {
  const Program* program = nullptr;
  const Plan* plan = nullptr;
  int rank = 0;
  Numbered<Group> groups;  // by queue; null: it does not communicate
};

// Returns all ranks of the mesh, each with its plan.
std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of);

}  // namespace prun
