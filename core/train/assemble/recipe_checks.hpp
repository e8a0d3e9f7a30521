// Checks what several values of a recipe mean together, before anything is made of them.
#pragma once

#include "train/assemble/program_writer.hpp"

namespace prun {

// Throws an Error that shows every combination that cannot work. A purpose that makes text reads no data.
void check_combinations(const Recipe& recipe, PluginHost& plugins, Purpose purpose);

// Checks axes: that strategy keeps state in parts over an axis; of others over it, one splits what gradients
// are summed from.
void check_parts_axes(const Recipe& recipe, const RecipeSection& keeper);

// Returns whether a run of the recipe saves between steps without a request: a plan makes room for such
// saves.
bool saves_between_steps(const Recipe& recipe);

// Returns whether a run of the recipe saves at all without a request: between steps or at its end.
bool saves(const Recipe& recipe);

}  // namespace prun
