#include "convert/transfer.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

using recipe::OptionType;
using recipe::parse_value;
using recipe::to_toml;

constexpr std::size_t comment_column = 40;
constexpr std::size_t longest_value = 60;  // of a setting, in a list

// In the order in which recipes have them. A name before a dot stands for all behind it.
constexpr std::array<std::string_view, 12> section_order = {"run",       "model", "data",      "data.blend",
                                                            "batch",     "eval",  "precision", "device",
                                                            "optimizer", "mesh",  "strategy",  "observer"};
// Strategies, in the order of the manual.
constexpr std::array<std::string_view, 6> strategy_order = {"data", "tensor",    "pipeline",
                                                            "zero", "recompute", "offload"};

bool is_list(std::string_view section) { return section == "strategy" || section == "observer"; }

// "strategy.zero.stage": the section "strategy.zero" and the key "stage".
std::pair<std::string, std::string> parts_of(std::string_view path) {
  std::size_t dot = path.find('.');
  const std::string_view first = path.substr(0, dot);
  if (is_list(first)) dot = path.find('.', dot + 1);
  if (path.starts_with("data.blend.")) dot = path.find('.', std::string_view("data.blend.").size());
  PRUN_CHECK(dot != std::string_view::npos, "a recipe's key without a section: ", path);
  return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

bool holds(const Rule& rule, const Setting& setting) {
  if (!glob_match(rule.key, setting.key)) return false;
  if (rule.when.empty()) return true;
  for (const std::string_view value : split(rule.when, '|'))
    if (value == setting.text) return true;
  return false;
}

std::string_view plugin_of(std::string_view section) { return section.substr(section.find('.') + 1); }

std::size_t rank_of_strategy(std::string_view section) {
  const auto found = std::find(strategy_order.begin(), strategy_order.end(), plugin_of(section));
  return static_cast<std::size_t>(found - strategy_order.begin());
}

std::string heading_of(std::string_view section) {
  if (section.starts_with("data.blend.")) return "[[data.blend]]\n";
  const std::string_view first = section.substr(0, section.find('.'));
  return is_list(first) ? "[[" + std::string(first) + "]]\n" : "[" + std::string(section) + "]\n";
}

std::string line_of(const std::string& key, const std::string& toml, const std::string& origin) {
  std::string line = key + " = " + toml;
  line.resize(std::max(line.size() + 2, comment_column), ' ');
  return line + "# " + printable(origin, 200) + "\n";
}

std::string named(const Setting& setting) {
  return setting.key + " = " + printable(setting.text, longest_value);
}

}  // namespace

std::string scalar_toml(std::string_view text) {
  if (text == "true" || text == "false") return std::string(text);
  if (text.starts_with('['))
    if (const auto list = parse_value(OptionType::reals, text)) return to_toml(*list);
  if (text.starts_with('[')) return std::string(text);
  for (const OptionType type : {OptionType::integer, OptionType::real})
    if (const auto value = parse_value(type, text)) return to_toml(*value);
  return to_toml(recipe::Value(std::string(text)));
}

// ------------------------------------------------------------------- what is there

const Setting* Transfer::find(std::string_view key) const {
  const auto found = std::find_if(settings_.rbegin(), settings_.rend(),
                                  [key](const Setting& setting) { return setting.key == key; });
  return found == settings_.rend() ? nullptr : &*found;
}

void Transfer::add(std::string key, std::string text) {
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
      set(rule->to, "", setting.key);
    else if (rule->fate == Fate::carried)
      set(rule->to, rule->value.empty() ? scalar_toml(setting.text) : scalar_toml(rule->value), setting.key);
    else
      setting.why = rule->to;
  }
}

// ------------------------------------------------------------------- the recipe

void Transfer::set(std::string_view path, std::string toml, std::string_view origin) {
  const auto [section, key] = parts_of(path);
  std::vector<Entry>& entries = sections_[section];
  const auto old =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& each) { return each.key == key; });
  if (old == entries.end())
    entries.push_back({key, std::move(toml), std::string(origin)});
  else
    *old = {key, std::move(toml), std::string(origin)};
}

void Transfer::set_text(std::string_view key, std::string_view text, std::string_view origin) {
  set(key, to_toml(recipe::Value(std::string(text))), origin);
}

void Transfer::set_integer(std::string_view key, std::int64_t number, std::string_view origin) {
  set(key, std::to_string(number), origin);
}

void Transfer::set_number(std::string_view key, double number, std::string_view origin) {
  set(key, to_toml(recipe::Value(number)), origin);
}

void Transfer::take(std::string_view from, std::string_view to) {
  if (is_left_open(from) && !knows(to))
    ask(detail::concat("--set ", to, "=…"), detail::concat(from, " is left open"));
  if (!has(from)) return;
  set(to, scalar_toml(text(from)), from);
  carried(from);
}

void Transfer::take(std::string_view from, std::string_view to, std::string_view framework_default) {
  if (has(from) || is_left_open(from)) return take(from, to);
  set(to, scalar_toml(framework_default), "default of " + framework_ + "'s " + std::string(from));
}

bool Transfer::knows(std::string_view path) const {
  for (const std::string& set : given_.sets)
    if (set.size() > path.size() && set.starts_with(path) && set[path.size()] == '=') return true;
  const auto [section, key] = parts_of(path);
  const auto found = sections_.find(section);
  return found != sections_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                 [&](const Entry& each) { return each.key == key; });
}

void Transfer::keep_console() {
  const auto first = sections_.lower_bound("observer.");
  if (first != sections_.end() && first->first.starts_with("observer.") && first->first != "observer.console")
    set("observer.console.", "", "beside the others");
}

void Transfer::ask(std::string flag, std::string what) {
  for (const auto& [known, ignored] : asked_)
    if (known == flag) return;
  asked_.emplace_back(std::move(flag), std::move(what));
}

std::string Transfer::tables() const {
  std::vector<std::string> names;
  for (const std::string_view wanted : section_order) {
    std::vector<std::string> here;
    for (const auto& [section, entries] : sections_)
      if (section == wanted ||
          (section.starts_with(std::string(wanted) + ".") && (is_list(wanted) || wanted == "data.blend")))
        here.push_back(section);
    if (wanted == "strategy")
      std::stable_sort(here.begin(), here.end(), [](const std::string& a, const std::string& b) {
        return rank_of_strategy(a) < rank_of_strategy(b);
      });
    names.insert(names.end(), here.begin(), here.end());
  }
  std::string text;
  for (const std::string& section : names) {
    text += (text.empty() ? "" : "\n") + heading_of(section);
    const std::vector<Entry>& entries = sections_.at(section);
    if (is_list(section.substr(0, section.find('.'))))
      text +=
          line_of("plugin", to_toml(recipe::Value(std::string(plugin_of(section)))), entries.front().origin);
    for (const Entry& entry : entries)
      if (!entry.key.empty()) text += line_of(entry.key, entry.toml, entry.origin);
  }
  return text;
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
