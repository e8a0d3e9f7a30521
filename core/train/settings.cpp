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

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Where the name of a key's table ends: "strategy" of "strategy.0.plugin", and whether there are several of
// it.
std::size_t end_of_list(const std::string& key) {
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const std::size_t next = key.find('.', dot + 1);
    if (next != std::string::npos && is_number(std::string_view(key).substr(dot + 1, next - dot - 1)))
      return dot;
  }
  return std::string::npos;
}

}  // namespace

// "strategy.0.plugin" is the key `plugin` of the first [[strategy]], "optimizer.schedule.kind" the key
// `schedule.kind` of [optimizer].
std::string to_toml(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> tables;  // header and keys; lists come behind the others
  std::string listed, last;
  for (const auto& [key, value] : settings) {
    const std::size_t list = end_of_list(key);
    const std::size_t name = key.find('.', list == std::string::npos ? 0 : list + 1);
    const std::string line = key.substr(name + 1) + " = " + value + "\n", table = key.substr(0, name);
    if (list != std::string::npos) {
      if (table != last) listed += "[[" + key.substr(0, list) + "]]\n";
      listed += line;
      last = table;
      continue;
    }
    auto found =
        std::find_if(tables.begin(), tables.end(), [&](const auto& known) { return known.first == table; });
    if (found == tables.end()) found = tables.insert(found, {table, ""});
    found->second += line;
  }
  std::string text;
  for (const auto& [table, lines] : tables) text += "[" + table + "]\n" + lines;
  return text + listed;
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
