#include "train/settings.hpp"

#include <algorithm>
#include <map>

namespace prun {

Settings settings_of(const Recipe& recipe) {
  Settings settings;
  for (const RecipeSection& section : recipe.all_sections())
    for (const auto& entry : section.entries())
      if (entry.value) settings.emplace_back(entry.path, recipe::to_toml(*entry.value));
  return settings;
}

bool belongs_to_a_place(std::string_view key) {
  for (const char* own : {"name", "out", "keep", "keep_every", "fresh", "hang_limit", "restarts"})
    if (key == std::string("run.") + own) return true;
  if (key == "model.config" || key == "model.init") return true;
  const std::string_view section = key.substr(0, key.find('.'));
  return section == "device" || section == "observer" || section == "plugins";
}

std::vector<Change> changes(const Settings& before, const Settings& now) {
  std::map<std::string, Change> all;
  for (const auto& [key, value] : before) all[key] = {key, value, "nothing"};
  for (const auto& [key, value] : now) {
    Change& change = all.emplace(key, Change{key, "nothing", ""}).first->second;
    change.now = value;
  }
  std::vector<Change> list;
  for (auto& [key, change] : all)
    if (change.before != change.now) list.push_back(std::move(change));
  return list;
}

}  // namespace prun
