#include "train/checkpoint/settings.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.hpp"
#include "recipe/toml_writer.hpp"

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

// Returns where the name of a key's table ends, if there may be several of it: "strategy" of
// "strategy.0.plugin".
std::size_t end_of_list(const std::string& key) {
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const std::size_t next = key.find('.', dot + 1);
    if (next != std::string::npos && is_number(std::string_view(key).substr(dot + 1, next - dot - 1)))
      return dot;
  }
  return std::string::npos;
}

struct Table {
  std::string place, list;  // texts such as "strategy.0" and "strategy"
  std::vector<std::pair<std::string, recipe::Value>> values;
};

void write(recipe::TomlWriter& out, const Table& table) {
  for (const auto& [key, value] : table.values) out.value(key, value);
}

}  // namespace

// Writes settings as TOML: "strategy.0.plugin" is the key `plugin` of the first [[strategy]],
// "optimizer.schedule.kind" the key `schedule.kind` of [optimizer].
std::string to_toml(const Settings& settings) {
  std::vector<Table> tables, items;  // items of lists come behind the others
  for (const auto& [key, text] : settings) {
    const std::optional<recipe::Value> value = recipe::value_of_toml(text);
    const std::size_t list = end_of_list(key);
    const std::size_t name = key.find('.', list == std::string::npos ? 0 : list + 1);
    if (!value || name == std::string::npos)
      throw_error(ErrorCode::bad_input, "setting ", in_quotes(key), " is ", in_quotes(text),
                  ", which no recipe says");
    const std::string place = key.substr(0, name);
    std::vector<Table>& all = list == std::string::npos ? tables : items;
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Table& known) { return known.place == place; });
    if (found == all.end()) found = all.insert(found, {place, key.substr(0, list), {}});
    found->values.emplace_back(key.substr(name + 1), *value);
  }
  recipe::TomlWriter out;
  for (const Table& table : tables) write(out.table(table.place), table);
  for (const Table& item : items) write(out.item(item.list), item);
  return out.text();
}

bool belongs_to_a_place(std::string_view key) {
  for (const char* own : {"name", "out", "save_memory", "save_rate", "save_at_end", "keep", "keep_every",
                          "fresh", "hang_limit", "restarts", "log"})
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
