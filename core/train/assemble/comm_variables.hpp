// The variables of the environment by which the comm plugins of a run are told where to make what they make:
// their notes name them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Those that take a folder in shared memory. One that the user has set holds.
std::vector<std::string> shared_folder_variables(const Recipe& recipe, PluginHost& plugins);
// Where they make files in shared memory: what the user has set, else the system's folder.
std::filesystem::path shared_memory_folder(const Recipe& recipe, PluginHost& plugins);

// Those that take a log, each with a file of the folder: NAME.log, where NAME is the plugin's.
std::vector<std::pair<std::string, std::string>> log_variables(const Recipe& recipe, PluginHost& plugins,
                                                               const std::filesystem::path& folder);

}  // namespace prun
