// Compares what the system, or the container, allows the ranks of a run on this host with what they need.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- host limits

struct HostShare {
  std::int64_t threads = 0;                          // threads of all ranks together, with their processes
  std::int64_t descriptors = 0;                      // descriptors of the process that has most open
  std::int64_t file_bytes = 0;                       // size of the largest file that a rank writes
  std::int64_t address_bytes = 0;                    // least addresses of one process
  std::int64_t shared_bytes = 0;                     // shared memory of all ranks together
  std::filesystem::path shared_folder = "/dev/shm";  // folder of shared memory
};

// Counts what can be known before a rank starts; what cannot be known is left out.
HostShare needs_of_host(const Assembly& assembly, PluginHost& plugins);
// Returns the same if all ranks are threads of one process, which has their files open together.
HostShare needs_of_threads(const Assembly& assembly, PluginHost& plugins);
// Returns what the limits leave, or the largest number if there is no limit. `root` is that of the file
// system.
HostShare room_on_host(const std::filesystem::path& root = "/",
                       const std::filesystem::path& shared_folder = "/dev/shm");

// Throws unsupported, with what is needed and what there is, unless there is enough.
void check_room(const HostShare& needs, const HostShare& room);

// Does both, and raises the soft limit on open files as far as the hard one allows.
void make_room_for_ranks(const Assembly& assembly, PluginHost& plugins);
void make_room_for_threads(const Assembly& assembly, PluginHost& plugins);
// Raises the limits of the rank that this process is, if no launcher has done so: open files, sizes of files,
// addresses.
void make_room_for_this_rank(const Assembly& assembly, PluginHost& plugins);

// ------------------------------------------------------------------- comm variables
// Lists the environment variables that tell the comm plugins of a run where to make their files: their notes
// name them.

// Returns the variables that name a folder in shared memory. One that the user has set is kept.
std::vector<std::string> shared_folder_variables(const Recipe& recipe, PluginHost& plugins);
// Returns where the plugins make files in shared memory: what the user has set, otherwise the system's
// folder.
std::filesystem::path shared_memory_folder(const Recipe& recipe, PluginHost& plugins);

// Returns the variables that name a log, each with a file of the folder: NAME.log, where NAME is the
// plugin's.
std::vector<std::pair<std::string, std::string>> log_variables(const Recipe& recipe, PluginHost& plugins,
                                                               const std::filesystem::path& folder);

}  // namespace prun
