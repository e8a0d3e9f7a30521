// Finds what would stop all ranks alike, once and before any starts.
#pragma once

#include "train/assemble/assembly.hpp"

namespace prun {

// Throws what a rank would throw for its data, its checkpoint, or a folder that cannot be written.
void preflight(const Assembly& assembly, PluginHost& plugins);
// Throws if the run begins anew with an optimizer that continues what another one has made.
void check_goes_on(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
