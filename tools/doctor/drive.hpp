// Measures the drive of a folder.
#pragma once

#include <filesystem>

#include "doctor/findings.hpp"

namespace prun {

// Writes and reads a little there, for a second at most, past the system's cache where the drive allows it.
Finding drive_finding(const std::filesystem::path& folder);

}  // namespace prun
