#include "cli/open_recipe.hpp"

#include "train/local_ranks.hpp"

namespace prun {

Opened open_recipe(const Arguments& arguments, const std::string& file) {
  Opened opened;
  opened.plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  opened.recipe = Recipe::load(file, arguments.sets, opened.plugins->catalog());
  return opened;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
