#include "cli/open_recipe.hpp"

namespace prun {

Opened open_recipe(const Arguments& arguments, const std::string& file) {
  Opened opened;
  opened.plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  opened.recipe = Recipe::load(file, arguments.sets, opened.plugins->catalog());
  return opened;
}

Recipe with_thread_ranks(Recipe recipe) {
  for (const auto& [key, value] : {std::pair{"device.threads", "1"}, std::pair{"device.pin", "false"}})
    if (recipe.find(key)) recipe = recipe.with(key, value);
  return recipe;
}

}  // namespace prun
