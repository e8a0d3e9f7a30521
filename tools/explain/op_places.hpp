// Where one of prun's own ops lies in the sources: rule, kernels, launch, example. The build finds it out.
#pragma once

#include <string_view>

namespace prun {

// One line; nothing for an op that a plugin brings.
std::string_view places_of_op(std::string_view kind);

}  // namespace prun
