// Lists the environment variables that tell the comm plugins of a run where to make their files: their notes
// name them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

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
