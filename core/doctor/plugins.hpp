// What devices and comm plugins say of this machine.
#pragma once

#include "assemble/plugin_host.hpp"
#include "doctor/finding.hpp"

namespace prun {

// Of all that are found, with their default options; a comm plugin goes with its device.
Findings plugin_findings(PluginHost& plugins);

}  // namespace prun
