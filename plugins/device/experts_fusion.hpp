// What devices do for the two halves of an expert layer's gradient where they stand in one function: both in
// one op, which computes what they share once.
#pragma once

#include "prun/program.hpp"

namespace prun {

void fuse_expert_gradients(ProgramRef program);

}  // namespace prun
