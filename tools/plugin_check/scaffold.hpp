// `prun plugins new KIND NAME [DIR]` writes a small, complete plugin project to start from.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- scaffold

// Writes CMakeLists.txt, <name>.cpp and README.md into `folder`, which is made if need be, and returns their
// paths. Throws bad_input, before anything is written, for a kind that has no such start, an unfit name, or a
// file that exists already: nothing is ever overwritten.
std::vector<std::filesystem::path> write_scaffold(std::string_view kind, std::string_view name,
                                                  const std::filesystem::path& folder);

// ------------------------------------------------------------------- scaffold templates
// Holds the files of a new plugin project. @KIND@, @NAME@, @CLASS@, @OP@, @SDK@ and @EPOCH@ are filled in.

std::string_view scaffold_cmake();
std::string_view scaffold_readme();

// Returns the source of a plugin of this kind, or of a `tier`, which is a device; empty when there is none.
std::string_view scaffold_source(std::string_view kind);
// These return the sources of devices, tiers and comm plugins.
std::string_view scaffold_device();
std::string_view scaffold_tier();
std::string_view scaffold_comm();

}  // namespace prun
