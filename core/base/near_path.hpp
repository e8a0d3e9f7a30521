// Guesses what a user may have meant who names a file or folder that does not exist.
#pragma once

#include <filesystem>
#include <string>

namespace prun {

// Returns "; did you mean 'runs/first'?", from what lies in the same folder, the run of that name in runs, or
// empty.
std::string did_you_mean_beside(const std::filesystem::path& missing);

}  // namespace prun
