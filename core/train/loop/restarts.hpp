// Runs that go on by themselves after a rank was lost.
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/launch/launcher.hpp"

namespace prun {

// launch() and, when a rank was killed, hangs or lost its peers, launch() again from the last checkpoint in
// the run's folder, or as before where there is none. So many times in a row at most: where no checkpoint has
// come to be in between, the next attempt would end as the last one. What is said of each failure stands in
// the folder's failures.log as well. `command`: what was typed, from which follows what to type next.
int launch_again(LaunchOptions options, const std::filesystem::path& run_folder, std::int64_t restarts,
                 const std::string& command);

// The command that goes on from the last checkpoint in the run's folder, or begins anew where there is none.
std::string command_to_go_on(const std::string& command, const std::filesystem::path& run_folder);

}  // namespace prun
