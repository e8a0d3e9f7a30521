// Lets the members of a group know each other: each learns the process and the UCX address of the others.
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

// Both functions are collective and throw comm_failed. A member whose own action throws still takes part,
// tells the others, and then rethrows.
std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address);
void all_do(const CommGroup& group, const std::function<void()>& action);

}  // namespace prun::ucx
