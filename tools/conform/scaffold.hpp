// `prun plugins new KIND NAME [DIR]` writes a small, complete plugin project to start from.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace prun {

// Writes CMakeLists.txt, <name>.cpp and README.md into `folder`, which is made if need be, and returns their
// paths. Throws bad_input, before anything is written, for a kind that has no such start, an unfit name, or a
// file that exists already: nothing is ever overwritten.
std::vector<std::filesystem::path> write_scaffold(std::string_view kind, std::string_view name,
                                                  const std::filesystem::path& folder);

}  // namespace prun
