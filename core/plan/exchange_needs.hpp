// Computes what a rank's exchanges send and need by a plan: bytes on the way, and pinned memory where they
// pass through the host.
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "prun/comm.hpp"
#include "prun/device.hpp"

namespace prun {

// Returns a rank's number among the members of a group that it belongs to.
std::int32_t place_among(const std::vector<int>& members, std::int64_t rank);

// Says whether exchanges go through pinned memory: the plugin moves only host memory, and the device's is
// not.
bool is_staged(const DeviceInfo& device, const CommInfo& comm);
// States what staging needs for a queue: pinned memory, and a thread that copies if there are chunks.
struct StagingNeeds {
  std::int64_t bytes = 0, threads = 0;
};
StagingNeeds staging_needs(const Plan& plan, std::size_t queue, std::int64_t members);

// Returns what a rank sends in a step on a queue, as its comm plugin will count it, and what that plugin
// needs for the largest exchange: a queue has one at a time under way.
CommNeeds planned_needs(const Mesh& mesh, const Plan& plan, std::int64_t rank, CommInterface& comm,
                        std::size_t queue, bool staged = false);

}  // namespace prun
