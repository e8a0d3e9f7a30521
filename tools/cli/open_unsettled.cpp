#include "cli/open_unsettled.hpp"

#include "cli/plugin_watch.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {

Recipe with_whole_paths(const Recipe& recipe, const std::filesystem::path& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  bool whole = true;
  std::vector<std::string> paths;
  for (const std::filesystem::path path : recipe.texts("plugins.path")) {
    whole = whole && path.is_absolute();
    paths.push_back((folder / path).lexically_normal().string());
  }
  return whole ? recipe : recipe.with("plugins.path", recipe::to_toml(recipe::Value(paths)));
}

Opened open_unsettled(const Arguments& arguments, const std::string& file) {
  Opened opened;
  opened.plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written =
      with_whole_paths(Recipe::load(file, arguments.sets, opened.plugins->catalog()), file);
  opened.flight = std::make_unique<FlightRecorder>();
  opened.watch = watch_over_plugins(written, *opened.flight);
  DeviceChoice device = choose_device(written, *opened.plugins, {0, 1});
  opened.chosen = device.said;
  opened.unsettled = std::move(device.recipe);
  return opened;
}

}  // namespace prun
