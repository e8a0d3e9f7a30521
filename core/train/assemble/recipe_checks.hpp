// What several values of a recipe mean together, checked before anything is made of them.
#pragma once

#include "train/assemble/program_writer.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work. Who makes text reads no data.
void check_combinations(const Recipe& recipe, PluginHost& plugins, Purpose purpose);

// State is kept in parts over an axis by that strategy: of others over it, one splits what gradients are
// summed from.
void check_parts_axes(const Recipe& recipe, const RecipeSection& keeper);

// Whether a run of the recipe saves of its own accord.
bool saves(const Recipe& recipe);

}  // namespace prun
