// Returns the recipe that a checkpoint was saved with, as one that can be opened again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "recipe/recipe.hpp"

namespace prun {

struct CheckpointRecipe {
  Recipe recipe;
  bool imported = false;  // it was imported and not trained: it states only its model
};

// Returns the recipe with `sets`, as --set takes them: if one sets another plugin in a section, the
// checkpoint's options of the previous one are left out. An imported checkpoint gets what a recipe must give
// besides a model: one rank, no data, and sequences of one token if `model.seq` is not set.
CheckpointRecipe recipe_of_checkpoint(const std::filesystem::path& checkpoint,
                                      const std::vector<std::string>& sets, PluginCatalog catalog);

}  // namespace prun
