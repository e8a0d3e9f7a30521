// What a rank is told by its environment: who it is, and where the others are met.
#pragma once

#include <string>
#include <vector>

#include "train/launch/launcher.hpp"

namespace prun {

// All of it, as NAME=value: this process' own without what other launchers have said, and what makes it
// `rank` of this host. `shared_folder`: its path, or empty. `socket`, `record`: descriptors that it inherits
// where all ranks are here.
std::vector<std::string> environment_of_rank(const LaunchOptions& options, int rank,
                                             const std::string& shared_folder, int socket, int record);

}  // namespace prun
