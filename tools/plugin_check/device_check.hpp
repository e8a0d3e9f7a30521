// Checks a device without a plan: its memory, a queue, copies and the kernels that it says it has.
#pragma once

#include <vector>

#include "plugin/discovery.hpp"
#include "plugin_check/conformance.hpp"

namespace prun {

CheckFinding check_device(const TriedPlugin& plugin);

// Checks its kernels against those of the device `cpu`; for the CPU's, also what they do to memory.
CheckFinding check_device_kernels(const TriedPlugin& plugin, const std::vector<SearchPlace>& places);

// Checks an op plugin's kernels for devices other than the CPU that are on this machine.
CheckFinding check_kernels_elsewhere(const TriedPlugin& plugin, const std::vector<SearchPlace>& places);

}  // namespace prun
