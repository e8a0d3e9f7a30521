// Lets updates on the host begin before the norm of all gradients is known.
#pragma once

#include "prun/plugin.hpp"

namespace prun {

// Writes the functions `speculate` and `settle` of segments whose updates `device` runs on values that it
// reaches as they are stored. Results stay the same to the bit: what an update changes is kept beside, and
// put back where the norm is beyond the limit (prun/ops/speculation.hpp).
void speculate_updates(ProgramRef program, std::int32_t device);

}  // namespace prun
