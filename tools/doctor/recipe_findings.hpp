// Checks this machine against what a recipe needs.
#pragma once

#include "doctor/findings.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Checks as if all its ranks were to run here. Nothing runs, and nothing is left behind.
Findings recipe_findings(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
