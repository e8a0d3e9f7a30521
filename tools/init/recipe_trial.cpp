#include "init/recipe_trial.hpp"

#include "cli/preflight.hpp"
#include "prun/device.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/automatic.hpp"
#include "train/assemble/one_host.hpp"

namespace prun {

Recipe parsed_recipe(const std::string& text, PluginHost& plugins) {
  return Recipe::parse(text, "the recipe of prun init", {}, plugins.catalog());
}

DeviceInfo device_of_recipe(const std::string& text, PluginHost& plugins) {
  const Recipe recipe = choose_device(parsed_recipe(text, plugins), plugins, {0, 1}).recipe;
  DeviceInfo info;
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  raise(device->info(&info));
  info.name = {};
  info.unit = {};
  return info;
}

void try_recipe(const std::string& text, std::int64_t ranks, PluginHost& plugins) {
  const LocalPlace place{0, static_cast<int>(ranks), true, true};
  const Recipe recipe = choose_device(parsed_recipe(text, plugins), plugins, place).recipe;
  plugins.set_local(place);
  const Assembly assembly(recipe, plugins);
  check_fits_one_host(assembly);
  preflight(assembly, plugins);
}

bool recipe_fits(const std::string& text, std::int64_t ranks, PluginHost& plugins) {
  try {
    try_recipe(text, ranks, plugins);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace prun
