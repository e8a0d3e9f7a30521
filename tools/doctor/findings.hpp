// Makes what `prun doctor` says of one thing, and text of all of it.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "plugin/finding.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- findings

// Returns a good finding with the text of `body`, or a broken one with its Error, which says what to do.
Finding attempt(const std::string& what, const std::function<std::string()>& body);

bool nothing_broken(std::span<const Finding> findings);
std::string to_text(std::span<const Finding> findings);
std::string to_json(std::span<const Finding> findings);

// ------------------------------------------------------------------- machine findings
// Examines this machine as the system describes it: processors, memory, limits, io_uring, launchers.

// `root` is the root of the file system.
Findings machine_findings(const std::filesystem::path& root = "/");

// ------------------------------------------------------------------- drive
// Measures the drive of a folder.

// Writes and reads a little there, for a second at most, past the system's cache where the drive allows it.
Finding drive_finding(const std::filesystem::path& folder);

// ------------------------------------------------------------------- plugins
// Collects what devices and comm plugins say of this machine.

// Examines all plugins that are found, with their default options; a comm plugin goes with its device.
Findings plugin_findings(PluginHost& plugins);

}  // namespace prun
