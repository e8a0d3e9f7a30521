// What a recipe leaves open stays as it was settled for the run that it goes on from: another order of
// microbatches may be other bits.
#pragma once

#include "train/assemble/timed_settings.hpp"

namespace prun {

// As the checkpoint that run.resume names, or the best in the folder that it names, was saved with; what that
// does not say stays open, and all does where the recipe, changed since, cannot have it so.
RecipeVariant settled_as_before(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
