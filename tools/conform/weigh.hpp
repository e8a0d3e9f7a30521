// Ops by which a trial makes one number of several results: they never leave it.
#pragma once

#include "conform/interpreter.hpp"

namespace prun {

// Adds weigh(y, weights) -> s = the sum of y * weights, and its gradient.
void add_weigh_ops(OpRegistry& registry);
// Returns the same kernels and these.
KernelsOf with_weigh_kernels(KernelsOf kernels);

}  // namespace prun
