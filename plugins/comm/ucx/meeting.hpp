// Lets the members of a group know each other: each learns the process and the UCX address of the others.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "prun/comm.hpp"

namespace prun::ucx {

// ------------------------------------------------------------------- process id
// Identifies the process of a member, and whether it still runs: shared memory cannot show that by itself.

// A process of this machine keeps its number and start time until it ends; no other ever has both.
struct ProcessId {
  std::uint64_t machine = 0;                  // names this boot of the machine
  std::uint64_t name_space = 0, network = 0;  // namespaces of processes, and of networks
  std::int32_t number = 0;
  std::uint32_t reserved = 0;
  std::uint64_t started = 0;

  static ProcessId own();

  // Says whether the two see each other in /proc.
  bool beside(const ProcessId& other) const {
    return machine == other.machine && name_space == other.name_space && started != 0 && other.started != 0;
  }
  // Says whether the two can wake each other: UCX rings for what it puts into shared memory by a socket whose
  // name other networks do not see.
  bool hears(const ProcessId& other) const { return network == other.network; }
  // Is for a process beside this one. It neither allocates nor waits. A zombie does not count as running.
  bool running() const;
};

// ------------------------------------------------------------------- meeting

struct Member {
  ProcessId process;
  std::vector<std::byte> address;
};

// Both functions are collective and throw comm_failed. A member whose own action throws still takes part,
// tells the others, and then rethrows.
std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address);
void all_do(const CommGroup& group, const std::function<void()>& action);

}  // namespace prun::ucx
