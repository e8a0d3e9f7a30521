// Computes what a rank's collectives need: bytes sent, the plugin's memory, and pinned memory if they pass
// through the host. Example: a CPU comm plugin with GPUs needs pinned chunks of 4 MiB for an all-reduce, and
// a thread that copies.
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

namespace prun {

std::int32_t place_among(const std::vector<int>& members, std::int64_t rank);

// Returns true if the plugin moves host memory only, and the device's memory is not the host's.
bool is_staged(const DeviceInfo& device, const CommInfo& comm);
// A queue's pinned memory, and whether it needs a thread to copy chunks.
struct StagingNeeds {
  std::int64_t bytes = 0, threads = 0;
};
StagingNeeds staging_needs(const Plan& plan, std::size_t queue, std::int64_t members);

// Returns the bytes that a rank sends in a step on a queue, as its comm plugin will count them, and needs of
// the largest collective: a queue runs one at a time.
CommNeeds planned_needs(const Mesh& mesh, const Plan& plan, std::int64_t rank, CommInterface& comm,
                        std::size_t queue, bool staged = false);

}  // namespace prun
