// Checks a model with the options that it is tried with, and with each option at its ends.
#pragma once

#include <vector>

#include "conform/conformance.hpp"
#include "plugin/discovery.hpp"

namespace prun {

// Checks that it is written alike each time, and that every parameter reaches the loss.
CheckFinding check_model_program(const TriedPlugin& plugin);

// Checks the gradients of the whole model against finite differences in fp64. `given` is as for
// trial_schema().
CheckFinding check_model_gradients(const TriedPlugin& plugin, const std::vector<SearchPlace>& places,
                                   const std::string& given);

// Checks that each option at its least and at its most, and each choice of it, is built or refused in words.
CheckFinding check_model_options(const TriedPlugin& plugin, const std::string& given);

}  // namespace prun
