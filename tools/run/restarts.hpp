// Restarts runs by themselves after a rank was lost.
#pragma once

#include <cstdint>
#include <filesystem>

#include "launch/launcher.hpp"

namespace prun {

// Calls launch() and, when a rank was killed, hangs or lost its peers, launch() again from the last
// checkpoint in the run's folder, or as before if there is none. It does so at most `restarts` times in a
// row: without a new checkpoint in between, the next attempt would end as the last one. Each failure is
// reported in the folder's failures.log as well. `command` is what was typed, from which follows what to type
// next.
int launch_again(LaunchOptions options, const std::filesystem::path& run_folder, std::int64_t restarts,
                 const std::string& command);

// Returns the command that goes on from the last checkpoint in the run's folder, or begins anew if there is
// none.
std::string command_to_go_on(const std::string& command, const std::filesystem::path& run_folder);

}  // namespace prun
