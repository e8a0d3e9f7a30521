// Holds the files of a new plugin project. @KIND@, @NAME@, @CLASS@, @OP@, @SDK@ and @EPOCH@ are filled in.
#pragma once

#include <string_view>

namespace prun {

std::string_view scaffold_cmake();
std::string_view scaffold_readme();

// Returns the source of a plugin of this kind, or of a `tier`, which is a device; empty when there is none.
std::string_view scaffold_source(std::string_view kind);
// These return the sources of devices, tiers and comm plugins.
std::string_view scaffold_device();
std::string_view scaffold_tier();
std::string_view scaffold_comm();

}  // namespace prun
