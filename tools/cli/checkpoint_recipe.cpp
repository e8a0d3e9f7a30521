#include "cli/checkpoint_recipe.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "recipe/core_schema.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/settings.hpp"

namespace prun {
namespace {

bool has(const Settings& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const auto& setting) { return setting.first == key; });
}

// Completes an import: a recipe must give these besides a model, but parameters, their loss and their text
// depend on none of them.
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
  for (const DType half : {DType::bf16, DType::f16}) {
    const auto is_half = [&](const auto& tensor) { return tensor.second.type == half; };
    if (!std::any_of(files.tensors().begin(), files.tensors().end(), is_half)) continue;
    settings.emplace_back("precision.compute", detail::concat("'", name_of(half), "'"));
    break;
  }
}

// Says whether the plugin of a section ("data.", "strategy.0.") reads a key, rather than the core, or a
// plugin of a section inside that one.
bool is_read_by_plugin(const std::string& key, const std::string& section) {
  if (!key.starts_with(section)) return false;
  for (const recipe::SectionRule& rule : recipe::core_sections()) {
    const bool inside = rule.name.starts_with(section) && key.starts_with(rule.name + ".");
    const bool same = rule.list ? section.starts_with(rule.name + ".") : section == rule.name + ".";
    if (inside || (same && rule.schema.find(std::string_view(key).substr(section.size())))) return false;
  }
  return true;
}

// Forgets options of replaced plugins: where another plugin is set in a section, they have no meaning;
// options of the core keep theirs.
void forget_replaced_plugins(Settings& settings, const std::vector<std::string>& sets) {
  constexpr std::string_view plugin = "plugin";
  for (const std::string& set : sets) {
    const std::size_t equals = std::min(set.find('='), set.size());
    const std::string key(trim(std::string_view(set).substr(0, equals)));
    if (!key.ends_with(plugin)) continue;
    const auto named = recipe::parse_value(recipe::OptionType::string,
                                           std::string_view(set).substr(std::min(equals + 1, set.size())));
    const auto was = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& setting) { return setting.first == key; });
    if (was == settings.end() || !named || was->second == recipe::to_toml(*named)) continue;
    const std::string section = key.substr(0, key.size() - plugin.size());
    std::erase_if(settings, [&](const auto& setting) { return is_read_by_plugin(setting.first, section); });
  }
}

// Reads from a manifest, which may come from anywhere.
std::string text_of(const Settings& settings, const std::string& manifest) {
  try {
    return to_toml(settings);
  } catch (const Error& error) {
    throw_error(error.code(), manifest, ": ", error.what());
  }
}

}  // namespace

CheckpointRecipe recipe_of_checkpoint(const std::filesystem::path& checkpoint,
                                      const std::vector<std::string>& sets, PluginCatalog catalog) {
  const CheckpointFiles files(checkpoint);
  Settings settings = files.manifest().recipe;
  const bool imported = !has(settings, "run.name");
  if (imported) complete_import(settings, files);
  // The origin of parameters when the run began matters only for those that are still stored there.
  const bool whole = files.manifest().base.empty();
  std::erase_if(settings, [&](const auto& setting) {
    return setting.first == "model.config" || setting.first == "run.resume" ||
           setting.first == "model.adapter" || (whole && setting.first == "model.init");
  });
  forget_replaced_plugins(settings, sets);
  const std::string manifest = checkpoint / manifest_name;
  return {Recipe::parse(text_of(settings, manifest), manifest, sets, std::move(catalog)), imported};
}

}  // namespace prun
