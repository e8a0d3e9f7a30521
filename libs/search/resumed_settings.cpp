#include "search/resumed_settings.hpp"

#include <algorithm>

#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

std::optional<std::string> value_before(const Settings& before, const TimedSetting& setting) {
  for (const std::string& value : setting.values)
    if (std::find(before.begin(), before.end(),
                  std::pair(setting.path, recipe::to_toml(recipe::Value(value)))) != before.end())
      return value;
  return {};
}

bool is_refused(const Recipe& recipe, PluginHost& plugins) {
  try {
    const Assembly assembly(recipe, plugins);
    return false;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    return true;
  }
}

}  // namespace

RecipeVariant settled_as_before(const Recipe& recipe, PluginHost& plugins) {
  RecipeVariant variant{recipe};
  std::vector<TimedSetting> open = timed_settings(recipe, plugins);
  std::erase_if(open, [](const TimedSetting& setting) { return !is_open(setting); });
  const std::string& resume = recipe.text("run.resume");
  if (open.empty() || resume.empty()) return variant;
  const std::optional<Manifest> manifest = manifest_to_go_on_from(resume);
  if (!manifest) return variant;
  for (const TimedSetting& setting : open)
    if (const auto value = value_before(manifest->recipe, setting)) variant.settle(setting, *value);
  if (!variant.settled.empty() && is_refused(variant.recipe, plugins)) return {recipe};
  return variant;
}

}  // namespace prun
