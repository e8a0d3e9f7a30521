#include "cli/open_recipe.hpp"

#include <algorithm>

#include "assemble/automatic.hpp"
#include "assemble/batch_arithmetic.hpp"
#include "train/checkpoint_files.hpp"
#include "train/checkpoint_folder.hpp"
#include "train/local_ranks.hpp"
#include "train/settings.hpp"

namespace prun {

LocalPlace place_of(const Identity& rank) { return {rank.local_rank, rank.local_world, rank.how == "prun"}; }

namespace {

// With the device chosen, where that is left open.
Opened opened(std::unique_ptr<PluginHost> plugins, const Recipe& written,
              const std::optional<Identity>& rank) {
  const auto world = static_cast<int>(mesh_of(written).world());
  DeviceChoice choice = choose_device(written, *plugins, rank ? place_of(*rank) : LocalPlace{0, world});
  return {std::move(plugins), std::move(choice.recipe), std::move(choice.said)};
}

bool has(const Settings& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == key; });
}

// What a recipe must give besides a model: nothing that parameters, their loss or their text depend on.
void complete_import(Settings& settings, const CheckpointFiles& files) {
  for (const auto& [key, value] : {std::pair("run.name", "'imported'"),
                                   {"run.steps", "1"},
                                   {"data.plugin", "'tokens'"},
                                   {"data.path", "''"},
                                   {"batch.global", "1"},
                                   {"batch.micro", "1"},
                                   {"optimizer.plugin", "'sgd'"},
                                   {"optimizer.lr", "1.0"}})
    settings.emplace_back(key, value);
  const auto half = [](const auto& tensor) { return tensor.second.type == DType::bf16; };
  if (std::any_of(files.tensors().begin(), files.tensors().end(), half))
    settings.emplace_back("precision.compute", "'bf16'");
}

}  // namespace

Opened open_recipe(const Arguments& arguments, const std::string& file, const std::optional<Identity>& rank) {
  auto plugins = std::make_unique<PluginHost>(plugin_places(file, arguments.sets, arguments.plugin_paths));
  const Recipe written = Recipe::load(file, arguments.sets, plugins->catalog());
  return opened(std::move(plugins), written, rank);
}

Opened open_checkpoint(const Arguments& arguments, const std::string& where,
                       const std::optional<Identity>& rank) {
  const std::filesystem::path folder = find_checkpoint(where);
  auto plugins = std::make_unique<PluginHost>(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const CheckpointFiles files(folder);
  Settings settings = files.manifest().recipe;
  const bool imported = !has(settings, "run.name");
  if (imported) complete_import(settings, files);
  // Where parameters came from when the run began is of no interest any more.
  std::erase_if(settings, [](const auto& setting) {
    return setting.first == "model.config" || setting.first == "model.init" || setting.first == "run.resume";
  });
  const Recipe written =
      Recipe::parse(to_toml(settings), folder / manifest_name, arguments.sets, plugins->catalog());
  Opened result = opened(std::move(plugins), written, rank);
  result.imported = imported;
  return result;
}

Recipe with_thread_ranks(Recipe recipe) {
  if (recipe.find("device.threads")) recipe = recipe.with("device.threads", "1");
  return unpinned(recipe);
}

}  // namespace prun
