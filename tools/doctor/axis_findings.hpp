// Finds what carries exchanges over the axes of a recipe's mesh.
#pragma once

#include "doctor/findings.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Has two ranks of this host find each other, as threads, where the plugin moves the host's memory. What they
// find holds for all ranks of the host that share its namespaces; the start of a run says it of all ranks.
Findings axis_findings(const Assembly& assembly, PluginHost& plugins);

}  // namespace prun
