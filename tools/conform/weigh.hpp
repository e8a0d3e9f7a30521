// Adds ops by which a trial makes one number of several results; no other code uses them.
#pragma once

#include "conform/interpreter.hpp"

namespace prun {

// Adds weigh(y, weights) -> s = the sum of y * weights, and its gradient.
void add_weigh_ops(OpRegistry& registry);
// Returns the same kernels and those of these ops.
KernelsOf with_weigh_kernels(KernelsOf kernels);

}  // namespace prun
