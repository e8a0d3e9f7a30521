// Keeps what a recipe leaves open as it was settled for the run that it goes on from: another order of
// microbatches may give other bits.
#pragma once

#include "search/timed_settings.hpp"

namespace prun {

// Settles the recipe as the checkpoint that run.resume names, or the best in the folder that it names, was
// saved with; what that does not state stays open, and all does if the recipe, changed since, does not allow
// it.
RecipeVariant settled_as_before(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
