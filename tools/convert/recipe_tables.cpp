#include "convert/recipe_tables.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "prun/visible.hpp"

namespace prun::convert {
namespace {

// Lists sections in the order in which recipes have them. A name before a dot stands for all after it.
constexpr std::array<std::string_view, 14> section_order = {
    "run",        "model",  "data",      "data.blend", "batch",    "eval",      "precision",
    "loss_scale", "device", "optimizer", "mesh",       "strategy", "tier.nvme", "observer"};
// Lists strategies in the order of the manual.
constexpr std::array<std::string_view, 6> strategy_order = {"data", "tensor",    "pipeline",
                                                            "zero", "recompute", "offload"};

bool is_list(std::string_view section) { return section == "strategy" || section == "observer"; }

// Splits "strategy.zero.stage" into the section "strategy.zero" and the key "stage".
std::pair<std::string, std::string> parts_of(std::string_view path) {
  std::size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  if (is_list(first)) dot = path.find('.', dot + 1);
  if (first == "tier") dot = path.find('.', dot + 1);
  if (path.starts_with("data.blend.")) dot = path.find('.', std::string_view("data.blend.").size());
  PRUN_CHECK(dot != std::string_view::npos, "a recipe's key without a section: ", path);
  return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

std::string_view plugin_of(std::string_view section) { return section.substr(section.find('.') + 1); }

std::size_t rank_of_strategy(std::string_view section) {
  const auto found = std::find(strategy_order.begin(), strategy_order.end(), plugin_of(section));
  return static_cast<std::size_t>(found - strategy_order.begin());
}

// Writes [model], [[data.blend]], or [[strategy]] with its plugin.
void write_header(recipe::TomlWriter& out, const std::string& section, const std::string& origin) {
  const std::string first = section.substr(0, section.find('.'));
  if (section.starts_with("data.blend."))
    out.item("data.blend");
  else if (is_list(first))
    out.item(first).value("plugin", std::string(plugin_of(section)), origin);
  else
    out.table(section);
}

}  // namespace

void RecipeTables::set(std::string_view path, recipe::Value value, std::string_view origin) {
  const std::pair<std::string, std::string> parts = parts_of(path);
  const std::string &section = parts.first, &name = parts.second;
  set_plugin(section, origin);
  std::vector<Entry>& entries = sections_[section].entries;
  auto old =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& each) { return each.key == name; });
  if (old == entries.end()) old = entries.insert(old, Entry{});
  *old = {name, std::move(value), std::string(origin)};
}

void RecipeTables::add_text(std::string_view key, std::string_view text, std::string_view origin) {
  const auto [section, name] = parts_of(key);
  std::vector<std::string> list;
  for (const Entry& entry : sections_[section].entries)
    if (entry.key == name) list = std::get<std::vector<std::string>>(entry.value);
  if (std::find(list.begin(), list.end(), text) == list.end()) list.emplace_back(text);
  set(key, std::move(list), origin);
}

void RecipeTables::set_plugin(std::string_view section, std::string_view origin) {
  sections_.try_emplace(std::string(section), Section{std::string(origin), {}});
}

void RecipeTables::keep_console() {
  const auto first = sections_.lower_bound("observer.");
  if (first != sections_.end() && first->first.starts_with("observer.") && first->first != "observer.console")
    set_plugin("observer.console", "beside the others");
}

bool RecipeTables::has(std::string_view path) const {
  const std::pair<std::string, std::string> parts = parts_of(path);
  const std::string &section = parts.first, &name = parts.second;
  const auto found = sections_.find(section);
  if (found == sections_.end()) return false;
  const std::vector<Entry>& entries = found->second.entries;
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& each) { return each.key == name; });
}

std::vector<std::string> RecipeTables::section_names() const {
  std::vector<std::string> names;
  for (const std::string_view wanted : section_order) {
    std::vector<std::string> here;
    for (const auto& [section, ignored] : sections_)
      if (section == wanted ||
          (section.starts_with(std::string(wanted) + ".") && (is_list(wanted) || wanted == "data.blend")))
        here.push_back(section);
    if (wanted == "strategy")
      std::stable_sort(here.begin(), here.end(), [](const std::string& a, const std::string& b) {
        return rank_of_strategy(a) < rank_of_strategy(b);
      });
    names.insert(names.end(), here.begin(), here.end());
  }
  return names;
}

void RecipeTables::write(recipe::TomlWriter& out) const {
  for (const std::string& name : section_names()) {
    const Section& section = sections_.at(name);
    write_header(out, name, section.origin);
    for (const Entry& entry : section.entries)
      out.value(entry.key, entry.value, printable(entry.origin, 200));
  }
}

}  // namespace prun::convert
