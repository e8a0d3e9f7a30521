// A rank keeps of its plan's calls, while it runs them, what each launch is given, ready to be passed on.
#pragma once

#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Calls with equal keys are given the same, and share it. `side` is that of the staging area.
using BoundKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t,
                            std::int32_t, std::int32_t, int, std::vector<std::uint32_t>>;
BoundKey bound_key(const Plan& plan, const Call& call, int side);

// The most that all of it takes of the host's memory.
std::int64_t bound_bytes(const Plan& plan);

}  // namespace prun
