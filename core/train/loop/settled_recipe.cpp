#include "train/loop/settled_recipe.hpp"

#include "train/assemble/quickest.hpp"
#include "train/checkpoint/resumed_settings.hpp"

namespace prun {

SettledRecipe settle(const Recipe& recipe, PluginHost& plugins,
                     const std::optional<std::filesystem::path>& costs) {
  const RecipeWay before = settled_as_before(recipe, plugins);
  Quickest quickest = choose_quickest(before.recipe, plugins, costs);
  SettledRecipe settled{std::move(quickest.recipe), {}};
  if (!quickest.said.empty()) settled.said.push_back(quickest.said);
  if (!before.settled.empty()) settled.said.push_back(before.said() + ", as in the run that goes on");
  return settled;
}

}  // namespace prun
