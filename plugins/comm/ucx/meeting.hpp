// How the members of a group get to know each other: process and UCX address of each.
#pragma once

#include <functional>
#include <vector>

#include "process_id.hpp"
#include "prun/comm.hpp"

namespace prun::ucx {

struct Member {
  ProcessId process;
  std::vector<std::byte> address;
};

// Collective. If `own_address` throws, this member still takes part, tells the others, and then rethrows.
// Throws comm_failed if another member could not.
std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address);

}  // namespace prun::ucx
