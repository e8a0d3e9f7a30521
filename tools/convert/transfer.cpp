#include "convert/transfer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "prun/visible.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- recipe tables

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

namespace {

// ------------------------------------------------------------------- transfer

using recipe::OptionType;
using recipe::parse_value;

constexpr std::size_t longest_value = 60, longest_key = 120;  // limit a setting in a list
constexpr std::size_t most_settings = 4096, longest_name = 1024;

bool holds(const Rule& rule, const Setting& setting) {
  if (!glob_match(rule.key, setting.key)) return false;
  if (rule.when.empty()) return true;
  for (const std::string_view value : split(rule.when, '|'))
    if (value == setting.text) return true;
  return false;
}

std::string named(const Setting& setting) {
  return printable(setting.key, longest_key) + " = " + printable(setting.text, longest_value);
}

}  // namespace

recipe::Value value_of(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  const auto types = text.starts_with('[') ? std::array{OptionType::reals, OptionType::strings}
                                           : std::array{OptionType::integer, OptionType::real};
  for (const OptionType type : types)
    if (auto value = parse_value(type, text)) return *value;
  return std::string(text);
}

// ------------------------------------------------------------------- what is there

const Setting* Transfer::find(std::string_view key) const {
  const auto found = std::find_if(settings_.rbegin(), settings_.rend(),
                                  [key](const Setting& setting) { return setting.key == key; });
  return found == settings_.rend() ? nullptr : &*found;
}

void Transfer::add(std::string key, std::string text) {
  if (settings_.size() == most_settings)
    throw_error(ErrorCode::bad_input, "it has more than ", most_settings,
                " settings, which is no configuration");
  if (key.size() > longest_name)
    throw_error(ErrorCode::bad_input, "a name has more than ", longest_name, " bytes: ", printable(key, 60));
  if (has(key)) without_effect(key, "given again further down, where the last one counts");
  settings_.push_back({std::move(key), std::move(text), Fate::open, {}});
}

std::string Transfer::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? find(key)->text : std::string(fallback);
}

std::optional<double> Transfer::number(std::string_view key) const {
  if (!has(key)) return {};
  const auto value = parse_value(OptionType::real, text(key));
  if (!value) throw_error(ErrorCode::bad_input, key, " is ", in_quotes(text(key)), ", which is no number");
  return std::get<double>(*value);
}

std::int64_t Transfer::integer(std::string_view key, std::int64_t fallback) const {
  const std::optional<double> value = number(key);
  if (!value) return fallback;
  const auto whole = static_cast<std::int64_t>(std::clamp(*value, -9e15, 9e15));
  if (static_cast<double>(whole) != *value)
    throw_error(ErrorCode::bad_input, key, " is ", in_quotes(text(key)), ", which is no whole number");
  return whole;
}

// ------------------------------------------------------------------- what becomes of it

void Transfer::account(std::string_view key, Fate fate, std::string_view why) {
  for (auto setting = settings_.rbegin(); setting != settings_.rend(); ++setting)
    if (setting->key == key) {
      if (setting->fate != Fate::open && fate == Fate::carried) return;
      setting->fate = fate;
      setting->why = why;
      return;
    }
}

void Transfer::refuse_default(std::string_view key, std::string_view value, std::string_view why) {
  settings_.push_back(
      {std::string(key), std::string(value) + " (by default)", Fate::refused, std::string(why)});
}

void Transfer::apply(std::span<const Rule> rules) {
  for (Setting& setting : settings_) {
    if (setting.fate != Fate::open) continue;
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& each) { return holds(each, setting); });
    if (rule == rules.end()) continue;
    setting.fate = rule->fate;
    if (rule->fate == Fate::carried && rule->to.ends_with('.'))
      set_plugin(rule->to.substr(0, rule->to.size() - 1), setting.key);
    else if (rule->fate == Fate::carried)
      set(rule->to, value_of(rule->value.empty() ? setting.text : rule->value), setting.key);
    else
      setting.why = rule->to;
  }
}

// ------------------------------------------------------------------- the recipe

void Transfer::set_text(std::string_view key, std::string_view text, std::string_view origin) {
  set(key, std::string(text), origin);
}

void Transfer::take(std::string_view from, std::string_view to) {
  if (is_left_open(from) && !knows(to))
    ask(detail::concat("--set ", to, "=…"), detail::concat(from, " is left open"));
  if (!has(from)) return;
  set(to, value_of(text(from)), from);
  carried(from);
}

void Transfer::take(std::string_view from, std::string_view to, std::string_view framework_default) {
  if (has(from) || is_left_open(from)) return take(from, to);
  set(to, value_of(framework_default), "default of " + framework_ + "'s " + std::string(from));
}

bool Transfer::knows(std::string_view path) const {
  for (const std::string& set : given_.sets)
    if (set.size() > path.size() && set.starts_with(path) && set[path.size()] == '=') return true;
  return tables_.has(path);
}

void Transfer::ask(std::string flag, std::string what) {
  for (const auto& [known, ignored] : asked_)
    if (known == flag) return;
  asked_.emplace_back(std::move(flag), std::move(what));
}

std::vector<std::string> Transfer::account_lines() const {
  std::vector<std::string> lines;
  const auto count = std::count_if(settings_.begin(), settings_.end(),
                                   [](const Setting& each) { return each.fate == Fate::carried; });
  lines.push_back(detail::concat("From ", framework_, ": ", count, " of ", settings_.size(),
                                 " settings are carried over."));
  const auto list = [&](Fate fate, const char* heading) {
    bool first = true;
    for (const Setting& setting : settings_) {
      if (setting.fate != fate) continue;
      if (first) lines.emplace_back(heading);
      first = false;
      lines.push_back("  " + named(setting) + (setting.why.empty() ? "" : ": " + setting.why));
    }
  };
  list(Fate::refused, "Not carried over:");
  list(Fate::left_open, "Left open there:");
  list(Fate::open, "Unknown, and not carried over:");
  list(Fate::without_effect, "Without effect here:");
  return lines;
}

}  // namespace prun::convert
