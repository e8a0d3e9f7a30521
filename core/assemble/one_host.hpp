// Whether all ranks of a run fit on one machine together.
#pragma once

#include "assemble/assembly.hpp"

namespace prun {

// Refuses ranks that all run on this machine where it has not the memory for all of them, or not as many
// units of the device.
void check_fits_one_host(const Assembly& assembly);

}  // namespace prun
