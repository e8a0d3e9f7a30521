// Checks that an op's rule tells the truth: computed in parts, as the dimensions that it leaves unmarked
// allow, from partial sums that it passes on, and with positions in another order where the rule allows that,
// an op must give the same result as on the whole.
#pragma once

#include <string>
#include <vector>

#include "conform/kernel_trial.hpp"

namespace prun {

// Tries the marks in fp64. Throws an Error that names op, mark and operand. Returns what it could not try:
// dimensions that have no two equal parts.
std::vector<std::string> try_marks(const KernelDef& kernel, const KernelCall& call);

}  // namespace prun
