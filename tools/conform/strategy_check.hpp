// A strategy beside two models, with ZeRO and without: what its ranks compute is what one rank computes.
#pragma once

#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// `given` are options of its own, as in its section of a recipe.
CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                            const std::string& given);

}  // namespace prun
