#include "cli/open_recipe.hpp"

#include <cstdio>

#include "base/text.hpp"
#include "cli/checkpoint_recipe.hpp"
#include "cli/open_unsettled.hpp"
#include "cli/plugin_watch.hpp"
#include "search/laid_out.hpp"
#include "search/settled_recipe.hpp"
#include "search/what_fits.hpp"
#include "train/assemble/automatic.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/tiers.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/rank.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Returns the place for a plan without started ranks: the first rank's on its host, with its share of the
// cores.
LocalPlace planned_place(const Recipe& recipe, PluginHost& plugins) {
  const std::int64_t world = mesh_of(recipe).world();
  if (world == 1) return {};
  DeviceInfo info;
  try {
    const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
    raise(device->info(&info));
  } catch (const Error&) {
    return {};  // code that needs the device says why there is none
  }
  return {0, static_cast<int>(ranks_of_host(info, recipe, plugins, world)), true, true};
}

// Settles what is left open: first the device, by which all else is planned.
Opened opened(std::unique_ptr<PluginHost> plugins, const Arguments& arguments, const Recipe& written,
              const std::optional<Identity>& rank) {
  Opened opened;
  opened.flight = std::make_unique<FlightRecorder>();
  opened.watch = watch_over_plugins(written, *opened.flight);
  const LocalPlace here = rank ? place_of(*rank) : LocalPlace{0, static_cast<int>(ranks_asked_for(written))};
  DeviceChoice device = choose_device(rank ? with_chosen_device(written, *rank) : written, *plugins, here);
  LaidOutRecipe laid_out = lay_out(device.recipe, *plugins, arguments.path("--costs"), rank);
  device.recipe = std::move(laid_out.recipe);
  plugins->set_local(rank ? here : planned_place(device.recipe, *plugins));
  SettledRecipe settled = settle(device.recipe, *plugins, arguments.path("--costs"));
  if (!device.said.empty()) settled.said.insert(settled.said.begin(), device.said);
  if (!laid_out.said.empty()) settled.said.push_back(std::move(laid_out.said));
  opened.unsettled = device.recipe;
  opened.recipe = std::move(settled.recipe);
  opened.chosen = join(settled.said, "; ");
  opened.plugins = std::move(plugins);
  return opened;
}

}  // namespace

std::vector<SearchPlace> plugin_places_of_checkpoint(const Arguments& arguments, const fs::path& folder) {
  std::string said;
  fs::path here;  // paths on the command line are relative to it
  for (const auto& [key, text] : read_manifest(folder).recipe)
    if (key == "plugins.path") said = text;
  constexpr std::string_view set = "plugins.path=";
  for (const std::string& one : arguments.sets)
    if (one.starts_with(set)) said = one.substr(set.size()), here = fs::current_path();
  const auto value = said.empty() ? std::nullopt : recipe::parse_value(recipe::OptionType::strings, said);
  std::vector<fs::path> paths;
  if (value)
    for (const std::string& path : std::get<std::vector<std::string>>(*value)) paths.push_back(here / path);
  return plugin_places_of(paths, arguments.plugin_paths);
}

Opened open_recipe(const Arguments& arguments, const std::string& file, const std::optional<Identity>& rank) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written = with_whole_paths(Recipe::load(file, arguments.sets, plugins->catalog()), file);
  return opened(std::move(plugins), arguments, written, rank);
}

Opened open_recipe_text(const Arguments& arguments, std::string text, const std::string& file) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written =
      with_whole_paths(Recipe::parse(std::move(text), file, arguments.sets, plugins->catalog()), file);
  return opened(std::move(plugins), arguments, written, std::nullopt);
}

void say_without_latest(const std::string& where) {
  if (const std::string note = note_without_latest(where); !note.empty())
    std::fprintf(stderr, "prun: %s\n", note.c_str());
}

Opened open_checkpoint(const Arguments& arguments, const std::string& where,
                       const std::optional<Identity>& rank) {
  const std::filesystem::path folder = find_checkpoint(where);
  if (!rank) say_without_latest(where);
  auto plugins = std::make_unique<PluginHost>(plugin_places_of_checkpoint(arguments, folder));
  const CheckpointRecipe saved = recipe_of_checkpoint(folder, arguments.sets, plugins->catalog());
  Opened result = opened(std::move(plugins), arguments, saved.recipe, rank);
  result.imported = saved.imported;
  return result;
}

Assembly assemble(const Opened& opened) {
  Assembly assembly = or_what_fits(*opened.recipe, *opened.plugins, check_hosts_have_room,
                                   [&] { return Assembly(*opened.recipe, *opened.plugins); });
  refuse_idle_tiers(assembly);
  return assembly;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
