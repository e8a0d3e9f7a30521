// Reads settings of a strategy's options that its traits list: those that hold where nothing is trained, and
// those that are for ranks with different sequences alone.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Parses "stage:1, stage:2" of a trait.
std::vector<std::pair<std::string, std::string>> settings_in(std::string_view trait);

// Returns the recipe of programs that evaluate or make text: strategies take the settings of their traits
// `untrained`.
Recipe with_untrained_settings(const Recipe& recipe, PluginHost& plugins);

// Checks a strategy with a setting of its trait `over_batch`: it names one axis, over which another strategy
// splits the batch, and none splits sequences.
void check_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                      Diagnostics& problems);

}  // namespace prun
