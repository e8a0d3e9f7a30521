// What several values of a recipe mean together, checked before anything is made of them.
#pragma once

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work.
void check_combinations(const Recipe& recipe, PluginHost& plugins);

// Whether a run of the recipe saves of its own accord.
bool saves(const Recipe& recipe);

}  // namespace prun
