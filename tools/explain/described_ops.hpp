// Lists the ops that a command line can name.
#pragma once

#include <string>

#include "cli/arguments.hpp"
#include "explain/op_text.hpp"

namespace prun {

// Returns prun's own ops and, for a recipe, those of the op plugins it names.
DescribedOps described_ops(const Arguments& arguments, const std::string& recipe);

}  // namespace prun
