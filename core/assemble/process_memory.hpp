// What a rank's process needs beside its plan, stated in advance.
#pragma once

#include "assemble/comm_needs.hpp"

namespace prun {

// What every process has besides its arena: code, libraries, stacks, the recipe, the program and its plans.
inline constexpr std::int64_t base_process_bytes = std::int64_t{11} << 20;

// With what the rank's comm plugins state.
std::int64_t process_need(const RankTraffic& rank);

}  // namespace prun
