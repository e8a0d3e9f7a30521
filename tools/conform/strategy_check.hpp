// Checks a strategy on two models, with ZeRO and without: its ranks must compute what one rank computes.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// `given` are options of its own, in the form of its section of a recipe. With a recipe, which must name the
// strategy, that is tried instead: for one that needs an optimizer, a router or data.
CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                            const std::string& given, const std::optional<std::filesystem::path>& recipe);

}  // namespace prun
