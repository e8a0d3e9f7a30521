// Collects what devices and comm plugins say of this machine.
#pragma once

#include "doctor/findings.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Examines all plugins that are found, with their default options; a comm plugin goes with its device.
Findings plugin_findings(PluginHost& plugins);

}  // namespace prun
