// What would stop all ranks alike, found once and before any starts.
#pragma once

#include "train/assemble/assembly.hpp"

namespace prun {

// Throws what a rank would throw for its data, its checkpoint, or a folder that cannot be written.
void preflight(const Assembly& assembly, PluginHost& plugins);

}  // namespace prun
