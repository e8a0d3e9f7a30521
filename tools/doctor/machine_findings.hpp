// Examines this machine as the system describes it: processors, memory, limits, io_uring, launchers.
#pragma once

#include <filesystem>

#include "doctor/findings.hpp"

namespace prun {

// `root` is the root of the file system.
Findings machine_findings(const std::filesystem::path& root = "/");

}  // namespace prun
