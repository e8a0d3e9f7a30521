// Checks whether the ranks of a machine fit on it together.
#pragma once

#include <optional>

#include "train/assemble/assembly.hpp"

namespace prun {

// Returns how many ranks share a host, as far as the device or the recipe states: one for each of its units.
// For another machine it is unknown: then each rank has its own host. Ranks on the host's cores all share it,
// unless the recipe says how many a host has.
std::int64_t ranks_of_host(const DeviceInfo& device, const Recipe& recipe, PluginHost& plugins,
                           std::int64_t world);
std::int64_t ranks_of_host(const Assembly& assembly);
// States what ranks of one host need together of its memory, and what there is.
struct HostMemory {
  std::size_t device = 0;  // device that says how much there is
  std::int64_t ranks = 0, needed = 0, there = 0;
  bool fits() const { return needed <= there; }
};
// Returns a host whose ranks together need more than it has; nothing if there is none, or if it is unknown
// how much hosts have.
std::optional<HostMemory> crowded_host(const Assembly& assembly);
bool hosts_have_room(const Assembly& assembly);
// Throws DoesNotFit if they do not.
void check_hosts_have_room(const Assembly& assembly);
// Returns a rank's share of what hosts have beyond their needs, where least is left; nothing if that is
// unknown.
std::optional<std::int64_t> left_on_hosts(const Assembly& assembly);

// Refuses ranks that all run on this machine if it lacks the memory for all of them, or enough units of the
// device.
void check_fits_one_host(const Assembly& assembly);

// Says whether the ranks of a host have more threads than it has cores.
bool cores_are_crowded(const Assembly& assembly);
// Returns a sentence that says so if they are; otherwise an empty text.
std::string crowded_cores(const Assembly& assembly);

}  // namespace prun
