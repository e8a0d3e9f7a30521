// The recipe that a checkpoint was saved with, as one that can be opened again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "recipe/recipe.hpp"

namespace prun {

struct CheckpointRecipe {
  Recipe recipe;
  bool imported = false;  // nobody has trained it: it says nothing but its model
};

// With `sets` as --set takes them: where one asks for another plugin in a section, what the checkpoint says
// to the one before is left out. An imported checkpoint gets what a recipe must give besides a model: one
// rank, no data, and sequences of one token where `model.seq` is not set.
CheckpointRecipe recipe_of_checkpoint(const std::filesystem::path& checkpoint,
                                      const std::vector<std::string>& sets, PluginCatalog catalog);

}  // namespace prun
