// Checks a strategy on two models, with ZeRO and without: its ranks must compute what one rank computes.
#pragma once

#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// `given` are options of its own, in the form of its section of a recipe.
CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                            const std::string& given);

}  // namespace prun
