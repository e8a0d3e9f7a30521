// Runs an update and what keeps the old state beside as one op.
#pragma once

#include "prun/program.hpp"

namespace prun {

// Makes adamw_keeping_old of each adamw and the keep_old of all that it changes, in `speculate`.
void fuse_kept_updates(ProgramRef program);

}  // namespace prun
