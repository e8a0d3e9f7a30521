// Makes the environment of a rank: which rank it is, and where it meets the others.
#pragma once

#include <string>
#include <vector>

#include "launch/launcher.hpp"

namespace prun {

// Returns all variables, as NAME=value: this process' own without those of other launchers, and those that
// make it `rank` of this host. `shared_folder` is its path, or empty. `socket` and `record` are descriptors
// that it inherits if all ranks are here.
std::vector<std::string> environment_of_rank(const LaunchOptions& options, int rank,
                                             const std::string& shared_folder, int socket, int record);

}  // namespace prun
