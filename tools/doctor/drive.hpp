// Measures the drive of a folder.
#pragma once

#include <filesystem>

#include "doctor/finding.hpp"

namespace prun {

// Returns the bytes that this user may still write to the drive that has the folder, or will have it.
std::int64_t free_bytes(const std::filesystem::path& folder);

// Writes and reads a little there, for a second at most, past the system's cache where the drive allows it.
Finding drive_finding(const std::filesystem::path& folder);

}  // namespace prun
