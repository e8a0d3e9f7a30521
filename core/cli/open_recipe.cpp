#include "cli/open_recipe.hpp"

#include "assemble/automatic.hpp"
#include "assemble/batch_arithmetic.hpp"
#include "train/local_ranks.hpp"

namespace prun {

LocalPlace place_of(const Identity& rank) { return {rank.local_rank, rank.local_world, rank.how == "prun"}; }

Opened open_recipe(const Arguments& arguments, const std::string& file, const std::optional<Identity>& rank) {
  Opened opened;
  opened.plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written = Recipe::load(file, arguments.sets, opened.plugins->catalog());
  const auto world = static_cast<int>(mesh_of(written).world());
  DeviceChoice choice =
      choose_device(written, *opened.plugins, rank ? place_of(*rank) : LocalPlace{0, world});
  opened.recipe = std::move(choice.recipe);
  opened.chosen = std::move(choice.said);
  return opened;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
