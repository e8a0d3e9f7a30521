// What several values of a recipe mean together, checked before anything is made of them.
#pragma once

#include "train/assemble/plugin_host.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work.
void check_combinations(const Recipe& recipe, PluginHost& plugins);

// State is kept in parts over an axis by that strategy: of others over it, one splits what gradients are
// summed from.
void check_parts_axes(const Recipe& recipe, const RecipeSection& keeper);

// Whether a run of the recipe saves of its own accord.
bool saves(const Recipe& recipe);

}  // namespace prun
