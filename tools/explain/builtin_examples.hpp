// Gives operands for prun's own ops, as op plugins give examples of theirs.
#pragma once

#include <vector>

#include "prun/op_plugin.hpp"

namespace prun {

std::vector<OpExample> builtin_examples();

}  // namespace prun
