// Finds what would stop all ranks alike, once and before any starts.
#pragma once

#include "train/assemble/assembly.hpp"

namespace prun {

// Throws what a rank would throw for its data, its checkpoint, or a folder that cannot be written.
void preflight(const Assembly& assembly, PluginHost& plugins);
// Returns the bytes of one checkpoint, of all ranks together.
std::int64_t checkpoint_bytes(const Assembly& assembly);
// Says so where the disk of run.out has no room for one checkpoint of a run that saves; else nothing. A plan
// may be for another machine's disk, so this is for the start of a run to refuse.
std::string no_room_for_save(const Assembly& assembly);
// Throws if the run begins anew with an optimizer that continues what another one has made.
void check_goes_on(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
