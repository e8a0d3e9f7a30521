// Fuses the two halves of an expert layer's gradient where one function has both: one op does both, and
// computes what they share once.
#pragma once

#include "prun/program.hpp"

namespace prun {

void fuse_expert_gradients(ProgramRef program);

}  // namespace prun
