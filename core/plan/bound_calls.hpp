// Counts what a rank keeps of its plan's calls while it runs them: the arguments of each launch, ready to be
// passed on.
#pragma once

#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Calls with equal keys get the same arguments, and share them. `side` is that of the staging area.
using BoundKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t,
                            std::int32_t, std::int32_t, int, std::vector<std::uint32_t>>;
BoundKey bound_key(const Plan& plan, const Call& call, int side);

// Returns the most host memory that all of it takes.
std::int64_t bound_bytes(const Plan& plan);

}  // namespace prun
