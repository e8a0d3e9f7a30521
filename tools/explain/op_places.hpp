// Says where the sources of one of prun's own ops are: rule, kernels, launch, example. The build finds them.
#pragma once

#include <string_view>

namespace prun {

// Returns one line; it is empty for an op that a plugin brings.
std::string_view places_of_op(std::string_view kind);

}  // namespace prun
