// Checks what several values of a recipe mean together, before anything is made of them.
#pragma once

#include "train/assemble/program_writer.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work. A purpose that makes text reads no data.
void check_combinations(const Recipe& recipe, PluginHost& plugins, Purpose purpose);

// Checks axes: that strategy keeps state in parts over an axis; of others over it, one splits what gradients
// are summed from.
void check_parts_axes(const Recipe& recipe, const RecipeSection& keeper);

// Says whether a run of the recipe saves without a request.
bool saves(const Recipe& recipe);

}  // namespace prun
