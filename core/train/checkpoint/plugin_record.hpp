// Which code takes part in a run.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// JSON: kind, name, version, path, digest and build of each plugin loaded; enough to tell two runs apart.
std::string plugin_record(const PluginHost& plugins);

}  // namespace prun
