// Records which code takes part in a run.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Returns JSON with kind, name, version, path, digest and build of each plugin loaded: enough to distinguish
// two runs.
std::string plugin_record(const PluginHost& plugins);

}  // namespace prun
