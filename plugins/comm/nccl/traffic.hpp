// Counts what an operation puts on the wire, by the ring that NCCL is configured to use, in payload bytes, as
// both the plan and the counters do.
#pragma once

#include "prun/comm.hpp"

namespace prun::nccl {

struct Traffic {
  std::uint64_t sent = 0, received = 0;
};

// Returns the traffic of member `rank` of a group of `size` members.
Traffic traffic_of(const CommOp& op, std::int32_t rank, std::int32_t size);

}  // namespace prun::nccl
