#include "search/timed_settings.hpp"

#include <algorithm>

#include "plugin/traits.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {
namespace {

TimedSetting setting_of(const recipe::Entry& entry) {
  TimedSetting setting{entry.path, std::get<std::string>(*entry.value), entry.option.choices};
  std::erase(setting.values, automatic);
  return setting;
}

void add_settings_of(const RecipeSection& strategy, PluginHost& plugins, std::vector<TimedSetting>& all) {
  const PluginNote& note = plugins.note("strategy", strategy.plugin());
  const std::string_view keys = trait_of(note, "timed");
  if (keys.empty()) return;
  for (const std::string_view item : split(keys, ',')) {
    const recipe::Entry* const entry = strategy.find(trim(item));
    const auto may_be_open = [](const std::vector<std::string>& choices) {
      return choices.size() > 1 && std::find(choices.begin(), choices.end(), automatic) != choices.end();
    };
    if (!entry || !entry->value || !may_be_open(entry->option.choices))
      throw_error(ErrorCode::bad_input, "strategy plugin '", note.name, "': its trait timed names ",
                  in_quotes(trim(item)),
                  ", and no option of that name has a default and is a choice with auto");
    all.push_back(setting_of(*entry));
  }
}

}  // namespace

std::vector<TimedSetting> timed_settings(const Recipe& recipe, PluginHost& plugins) {
  std::vector<TimedSetting> all = {setting_of(recipe.entry("batch.order"))};
  for (const RecipeSection& strategy : recipe.strategies()) add_settings_of(strategy, plugins, all);
  return all;
}

bool is_open(const TimedSetting& setting) { return setting.value == automatic; }

void RecipeVariant::settle(const TimedSetting& setting, const std::string& value) {
  recipe = recipe.with(setting.path, value);
  settled.push_back(setting.path + "=" + value);
}

std::vector<RecipeVariant> variants_of(const Recipe& recipe, PluginHost& plugins) {
  std::vector<RecipeVariant> variants = {{recipe}};
  for (const TimedSetting& setting : timed_settings(recipe, plugins)) {
    if (!is_open(setting)) continue;
    std::vector<RecipeVariant> longer;
    for (const RecipeVariant& variant : variants)
      for (const std::string& value : setting.values) longer.emplace_back(variant).settle(setting, value);
    variants = std::move(longer);
  }
  return variants;
}

}  // namespace prun
