// Says where the sources have one of prun's own ops: rule, kernels, launch, example. The build finds it out.
#pragma once

#include <string_view>

namespace prun {

// One line; nothing for an op that a plugin brings.
std::string_view places_of_op(std::string_view kind);

}  // namespace prun
