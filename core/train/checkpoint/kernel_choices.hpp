// Keeps what devices choose by measuring, such as the algorithms of matrix products: bits depend on it, so a
// run that goes on must choose as it did before, whatever measuring finds today.
#pragma once

#include <string>

#include "train/assemble/assembly.hpp"

namespace prun {

// Returns the choices of all devices of this rank, once they have bound what they run: lines, each with its
// end.
std::string kernel_choices(const Assembly& assembly);

// Tells the devices, before they bind anything, what the checkpoint that the recipe goes on from has of them;
// returns the assembly. What is wrong with a checkpoint is reported when it is loaded.
const Assembly& with_kernel_choices(const Assembly& assembly);

}  // namespace prun
