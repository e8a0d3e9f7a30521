// Checks plugins that write or change programs: models, optimizers and strategies.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "plugin/discovery.hpp"
#include "plugin_check/conformance.hpp"

namespace prun {

// ------------------------------------------------------------------- model check
// Checks a model with the options that it is tried with, and with each option at its ends.

// Checks that it is written alike each time, and that every parameter reaches the loss.
CheckFinding check_model_program(const TriedPlugin& plugin);

// Checks the gradients of the whole model against finite differences in fp64. `given` is as for
// trial_schema().
CheckFinding check_model_gradients(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                                   const std::string& given);

// Checks that each option at its least and at its most, and each choice of it, is built or refused in words.
CheckFinding check_model_options(const TriedPlugin& plugin, const std::string& given);

// ------------------------------------------------------------------- optimizer check
// Checks an optimizer with one parameter.

CheckFinding check_optimizer(const TriedPlugin& plugin, const std::vector<SearchPlace>& places);

// ------------------------------------------------------------------- strategy check
// Checks a strategy on two models, with ZeRO and without: its ranks must compute what one rank computes.

// `given` are options of its own, in the form of its section of a recipe. With a recipe, which must name the
// strategy, that is tried instead: for one that needs an optimizer, a router or data.
CheckFinding check_strategy(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                            const std::string& given, const std::optional<std::filesystem::path>& recipe);

}  // namespace prun
