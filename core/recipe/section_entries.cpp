#include "recipe/section_entries.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "recipe/typed_value.hpp"

namespace prun::recipe {
namespace {

constexpr std::size_t longest_free_name = 23;  // length that a Name holds

bool valid_free_name(std::string_view name) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const bool digit_first = !name.empty() && name[0] >= '0' && name[0] <= '9';
  return !name.empty() && !digit_first && name.size() <= longest_free_name &&
         name.find_first_not_of(letters) == std::string_view::npos;
}

bool is_plugin_table(const Scope& scope, const Member& member) {
  return scope.path == scope.rule.name && !scope.rule.table_kind.empty() &&
         member.value.kind == Node::Kind::table;
}

bool is_table_key(const Scope& scope, const std::string& key) {
  return std::any_of(scope.declared.begin(), scope.declared.end(),
                     [&](const Declared& d) { return d.option.key.starts_with(key + "."); });
}

}  // namespace

void SectionEntries::add(const Scope& scope) {
  for (const Declared& declared : scope.declared)
    if (declared.option.key != "*") add_entry(scope, declared, declared.option.key);
  unknown_.remember_keys(scope);
  if (scope.table) fill(scope, *scope.table, "");
  report_missing(scope);
}

Entry& SectionEntries::add_entry(const Scope& scope, const Declared& declared, const std::string& key) {
  Entry entry{scope.path + "." + key, key, declared.option, declared.by, std::nullopt, {}};
  if (declared.option.presence == Presence::has_default) entry.value = declared.option.default_value;
  entries_.push_back(std::move(entry));
  return entries_.back();
}

void SectionEntries::fill(const Scope& scope, const Node& table, const std::string& prefix) {
  for (const Member& member : table.members) {
    const std::string key = prefix + member.key;
    const bool quoted_dot = member.key.find('.') != std::string::npos;
    const bool nested_section =
        is_section(scope.rule.name + "." + key) || (prefix.empty() && is_plugin_table(scope, member));
    if (quoted_dot)
      unknown_.note(scope, key, member.at);
    else if (nested_section)
      continue;
    else if (is_table_key(scope, key))
      fill_table(scope, member, key);
    else
      fill_value(scope, member, key);
  }
}

void SectionEntries::fill_table(const Scope& scope, const Member& member, const std::string& key) {
  if (member.value.kind == Node::Kind::table) return fill(scope, member.value, key + ".");
  std::string meant;
  for (const Declared& declared : scope.declared)
    if (meant.empty() && declared.option.key.starts_with(key + "."))
      meant = chosen_by(member.value, declared.option);
  report(member.value.at, "wrong type for " + in_quotes(key) + " in " + scope.label() +
                              ": expected table, got " + describe(member.value) + meant);
}

void SectionEntries::fill_value(const Scope& scope, const Member& member, const std::string& key) {
  Entry* const entry = find_entry(scope, key, member);
  if (!entry) return unknown_.note(scope, key, member.at);
  entry->at = member.at;
  const std::string subject = in_quotes(key) + " in " + scope.label();
  entry->value = convert(member.value, entry->option, subject, diagnostics_);
  const auto* const text = entry->value ? std::get_if<std::string>(&*entry->value) : nullptr;
  if (text && !text->empty() && scope.path == scope.rule.name && !scope.rule.value_kind.empty())
    plugins_.find(scope.rule.value_kind, *text, member.value.at);
}

// Returns the declared entry of this key, or a new one if the section takes any name.
Entry* SectionEntries::find_entry(const Scope& scope, const std::string& key, const Member& member) {
  for (std::size_t i = scope.first; i < entries_.size(); ++i)
    if (entries_[i].key == key) return &entries_[i];
  for (const Declared& declared : scope.declared) {
    if (declared.option.key != "*") continue;
    if (!valid_free_name(key))
      report(member.at, "name " + in_quotes(key) + " in " + scope.label() +
                            " is not made of letters, digits and '_', or is longer than " +
                            std::to_string(longest_free_name) + " letters");
    return &add_entry(scope, declared, key);
  }
  return nullptr;
}

void SectionEntries::report_missing(const Scope& scope) {
  std::vector<std::string> missing;
  for (std::size_t i = scope.first; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool lacks = entry.option.presence == Presence::required && !entry.value && !entry.at.source;
    if (lacks) missing.push_back(in_quotes(entry.key));
  }
  if (missing.empty()) return;
  if (!scope.table)
    return report(Location{main_},
                  "missing section " + scope.label() + "; it must give " + join(missing, ", "));
  for (const std::string& key : missing)
    report(scope.table->at, "missing required key " + key + " in " + scope.label());
}

}  // namespace prun::recipe
