// What devices choose by trying, as the algorithms of matrix products: bits depend on it, so a run that goes
// on is to choose as it did before, whatever trying finds today.
#pragma once

#include <string>

#include "train/assemble/assembly.hpp"

namespace prun {

// Returns the choices of all devices of this rank, once they have bound what they run: lines, each with its
// end.
std::string kernel_choices(const Assembly& assembly);

// Tells the devices what the checkpoint that the recipe goes on from has of them, before they bind anything;
// returns the assembly. Whatever is wrong with a checkpoint is said by who loads it.
const Assembly& with_kernel_choices(const Assembly& assembly);

}  // namespace prun
