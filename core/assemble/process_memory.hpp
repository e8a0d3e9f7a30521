// What a rank's process needs beside its plan, stated in advance.
#pragma once

#include "assemble/comm_needs.hpp"

namespace prun {

// What every process has besides its arena: code, libraries, stacks, the recipe, the program and its plans.
inline constexpr std::int64_t base_process_bytes = std::int64_t{12} << 20;

struct ProcessNeed {
  std::int64_t bytes = 0;         // of the host
  std::int64_t device_bytes = 0;  // of the device
};

// With what the rank's device and comm plugins state.
ProcessNeed process_need(const RankTraffic& rank);

}  // namespace prun
