#include "search/settled_recipe.hpp"

#include "search/quickest.hpp"
#include "search/resumed_settings.hpp"
#include "search/run_length.hpp"

namespace prun {

SettledRecipe settle(const Recipe& recipe, PluginHost& plugins,
                     const std::optional<std::filesystem::path>& costs) {
  RunLength length = with_run_length(recipe, plugins);
  const RecipeVariant before = settled_as_before(length.recipe, plugins);
  Quickest quickest = choose_quickest(before.recipe, plugins, costs);
  SettledRecipe settled{std::move(quickest.recipe), {}};
  if (!length.said.empty()) settled.said.push_back(length.said);
  if (!quickest.said.empty()) settled.said.push_back(quickest.said);
  if (!before.settled.empty()) settled.said.push_back(before.said() + ", as in the run that goes on");
  return settled;
}

}  // namespace prun
