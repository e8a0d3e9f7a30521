// Counts the host memory of launches that are bound in advance: arguments of each kernel, ready to run.
// Example: 32 layers × 4 microbatches with 20 kernels each need some 2500 rows of arguments, unless calls
// have equal addresses.
#pragma once

#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Calls with equal keys share arguments. `side`: staging buffer.
using BoundKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t,
                            std::int32_t, std::int32_t, int, std::vector<std::uint32_t>>;
BoundKey bound_key(const Plan& plan, const Call& call, int side);

// Returns the most bytes that they take.
std::int64_t bound_bytes(const Plan& plan);

}  // namespace prun
