// What the system, or the container, allows the ranks of a run on this host, against what they need.
#pragma once

#include <filesystem>

#include "train/assemble/assembly.hpp"

namespace prun {

struct HostShare {
  std::int64_t threads = 0;                          // of all ranks together, with their processes
  std::int64_t descriptors = 0;                      // of the process that has most open
  std::int64_t file_bytes = 0;                       // of the largest file that a rank writes
  std::int64_t address_bytes = 0;                    // of one process, at least
  std::int64_t shared_bytes = 0;                     // of all ranks together, in the host's shared memory
  std::filesystem::path shared_folder = "/dev/shm";  // where that is
};

// Counts what can be known before a rank starts; what cannot is left out.
HostShare needs_of_host(const Assembly& assembly, PluginHost& plugins);
// Returns the same where all of them are threads of one process, which has their files open together.
HostShare needs_of_threads(const Assembly& assembly, PluginHost& plugins);
// Returns what the limits leave; the largest number where there is none. `root` is that of the file system.
HostShare room_on_host(const std::filesystem::path& root = "/",
                       const std::filesystem::path& shared_folder = "/dev/shm");

// Throws unsupported, with what is needed and what there is.
void check_room(const HostShare& needs, const HostShare& room);

// Both, and raises the soft limit on open files where the hard one allows it.
void make_room_for_ranks(const Assembly& assembly, PluginHost& plugins);
void make_room_for_threads(const Assembly& assembly, PluginHost& plugins);
// Raises the limits of the rank that this process is, where no launcher has done so: open files, sizes of
// files, addresses.
void make_room_for_this_rank(const Assembly& assembly, PluginHost& plugins);

}  // namespace prun
