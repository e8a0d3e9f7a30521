// Whether an op's rule says the truth: computed in parts, as the dimensions that it leaves unmarked allow,
// of partial sums that it passes on, and of positions in another order where that is all one to it, an op
// gives what it gives of the whole.
#pragma once

#include <string>
#include <vector>

#include "conform/kernel_trial.hpp"

namespace prun {

// Tries them in fp64. Throws an Error that names op, mark and operand. Returns what it could not try:
// dimensions that have no two equal parts.
std::vector<std::string> try_marks(const KernelDef& kernel, const KernelCall& call);

}  // namespace prun
