// Walks the sections of a recipe, section by section, and collects values and problems.
#include "recipe/recipe.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/schema.hpp"

namespace prun::recipe {

namespace {

// ------------------------------------------------------------ a section

// Holds an option, and who declares it: "core", "strategy plugin 'zero'".
struct Declared {
  Option option;
  std::string by;
};

struct Scope {
  const SectionRule& rule;
  std::string path;
  const Node* table;  // null if the recipe does not have it
  std::string plugin;
  bool plugin_known = true;  // otherwise its keys cannot be distinguished from mistakes
  std::vector<Declared> declared;
  std::size_t first = 0;  // number of its first entry

  // Returns a label such as "[model]" or "[[strategy]] 'zero'".
  std::string label() const {
    if (!rule.list) return "[" + path + "]";
    return plugin.empty() ? rule.label() : rule.label() + " " + in_quotes(plugin);
  }
};

// Says whether a path is one of core's sections, and not one of its keys.
bool is_section(std::string_view path) {
  const auto rules = core_sections();
  return std::any_of(rules.begin(), rules.end(), [path](const SectionRule& r) { return r.name == path; });
}

// Returns "; it is a choice of schedule.kind" if a table stands in place of the text that one of its keys
// takes.
std::string chosen_by(const Node& node, const Option& option) {
  const bool text = node.kind == Node::Kind::string || node.kind == Node::Kind::bare;
  const auto& choices = option.choices;
  if (!text || std::find(choices.begin(), choices.end(), trim(node.text)) == choices.end()) return {};
  return "; it is a choice of " + in_quotes(option.key);
}

// Returns a text as TOML, as settings are stored; it is empty for another value.
std::string text_as_toml(const Node& node) {
  if (node.kind == Node::Kind::string) return to_toml(Value(node.text));
  const auto text = node.kind == Node::Kind::bare ? parse_value(OptionType::string, node.text) : std::nullopt;
  return text ? to_toml(*text) : std::string();
}

// ------------------------------------------------------------ plugin options

// Adds the options that a section's plugin declares to the core's.
class PluginOptions {
 public:
  PluginOptions(const std::shared_ptr<const Source>& main, const PluginCatalog& catalog,
                Diagnostics& diagnostics)
      : main_(main), catalog_(catalog), diagnostics_(diagnostics) {}

  // Finds the plugin that the section names, or the one that it has by default, and adds what it declares.
  void add(Scope& scope);
  // Reports a plugin that does not exist or cannot be used.
  std::optional<Schema> find(const std::string& kind, const std::string& name, const Location& at);

 private:
  void add_options(Scope& scope, const Schema& schema, const Location& at);

  const std::shared_ptr<const Source>& main_;
  const PluginCatalog& catalog_;
  Diagnostics& diagnostics_;
};

// ------------------------------------------------------------ unknown names

// Collects names in a recipe that are not declared. What one was meant to be is known once all sections are.
class UnknownNames {
 public:
  // Remembers what this section accepts, or would accept if it were written otherwise.
  void remember_keys(const Scope& scope);
  void declare(const SectionRule& rule);
  // Notes a key of the section that was remembered last.
  void note(const Scope& scope, std::string key, const Location& at);
  // Reports the noted keys, then what is outside of all sections.
  void report(const Node& root, Diagnostics& diagnostics) const;

 private:
  struct UnknownKey {
    std::size_t section;
    std::string key;
    Location at;
  };

  void report_keys(Diagnostics& diagnostics) const;
  void report_top(const Node& root, Diagnostics& diagnostics) const;

  std::vector<KeySet> key_sets_;  // one for each section resolved so far
  std::vector<UnknownKey> unknown_;
};

class SectionEntries {
 public:
  SectionEntries(const std::shared_ptr<const Source>& main, PluginOptions& plugins, UnknownNames& unknown,
                 Diagnostics& diagnostics)
      : main_(main), plugins_(plugins), unknown_(unknown), diagnostics_(diagnostics) {}

  // Returns the entries of all sections so far.
  std::vector<Entry>& all() { return entries_; }
  // Adds one entry for each option that the section declares, with what its table says. Reports what is wrong
  // or missing.
  void add(const Scope& scope);

 private:
  Entry& add_entry(const Scope& scope, const Declared& declared, const std::string& key);
  void fill(const Scope& scope, const Node& table, const std::string& prefix);
  void fill_table(const Scope& scope, const Member& member, const std::string& key);
  void fill_value(const Scope& scope, const Member& member, const std::string& key);
  Entry* find_entry(const Scope& scope, const std::string& key, const Member& member);
  void report_missing(const Scope& scope);
  void report(Location at, std::string message) { diagnostics_.add(std::move(at), std::move(message)); }

  const std::shared_ptr<const Source>& main_;
  PluginOptions& plugins_;
  UnknownNames& unknown_;
  Diagnostics& diagnostics_;
  std::vector<Entry> entries_;
};

// ------------------------------------------------------------ its entries

// Returns an option that the core reads where it is written, and does without.
Declared* optional_of_core(Scope& scope, std::string_view key) {
  const auto found = std::find_if(scope.declared.begin(), scope.declared.end(), [&](const Declared& known) {
    return known.option.key == key && known.option.presence == Presence::optional;
  });
  return found == scope.declared.end() ? nullptr : &*found;
}

bool taken_by_core(const SectionRule& rule, std::string_view key) {
  for (const Option& option : rule.schema.options())
    if (keys_collide(option.key, key)) return true;
  for (const SectionRule& other : core_sections())
    if (other.name.starts_with(rule.name + ".") &&
        keys_collide(std::string_view(other.name).substr(rule.name.size() + 1), key))
      return true;
  return false;
}

void PluginOptions::add(Scope& scope) {
  const Member* const member = scope.table ? scope.table->find("plugin") : nullptr;
  scope.plugin_known = false;
  std::optional<Value> name = scope.rule.schema.find("plugin")->default_value;
  Location at = scope.table ? scope.table->at : Location{main_};
  if (member) {
    Diagnostics ignored;  // fill() reports a plugin that is no text
    name = convert(member->value, *scope.rule.schema.find("plugin"), "", ignored);
    at = member->value.at;
  }
  const auto* const text = name ? std::get_if<std::string>(&*name) : nullptr;
  const bool need_none = scope.rule.schema.find("plugin")->presence == Presence::optional;
  if (need_none && !member) scope.plugin_known = true;
  if (!text || (text->empty() && !member)) return;
  scope.plugin = *text;
  const std::optional<Schema> schema = find(scope.rule.plugin_kind, *text, at);
  scope.plugin_known = schema.has_value();
  if (schema) add_options(scope, *schema, at);
}

void PluginOptions::add_options(Scope& scope, const Schema& schema, const Location& at) {
  const std::string by = scope.rule.plugin_kind + " plugin " + in_quotes(scope.plugin);
  for (const Option& option : schema.options()) {
    if (Declared* const known = optional_of_core(scope, option.key))
      known->option = option;
    else if (taken_by_core(scope.rule, option.key))
      diagnostics_.add(at, by + " declares " + in_quotes(option.key) +
                               ", which the core reads itself; the plugin must rename it");
    else
      scope.declared.push_back({option, by});
  }
}

std::optional<Schema> PluginOptions::find(const std::string& kind, const std::string& name,
                                          const Location& at) {
  try {
    if (const Schema* const schema = catalog_.schema(kind, name)) return *schema;
    diagnostics_.add(
        at, "unknown " + kind + " plugin " + in_quotes(name) + suggest_plugin(name, catalog_.names(kind)));
  } catch (const Error& error) {
    diagnostics_.add(at, error.what());
  }
  return std::nullopt;
}

// Says whether a suggestion is worth its search: problems beyond those shown are not read.
bool worth_a_suggestion(const Diagnostics& diagnostics) {
  return diagnostics.size() < 4 * Diagnostics::max_shown;
}

void UnknownNames::remember_keys(const Scope& scope) {
  KeySet set{scope.rule.list ? scope.rule.name : scope.path, scope.label(), {}};
  for (const Declared& declared : scope.declared) set.keys.push_back(declared.option.key);
  key_sets_.push_back(std::move(set));
}

void UnknownNames::declare(const SectionRule& rule) {
  KeySet set{rule.name, rule.label(), {}};
  for (const Option& option : rule.schema.options()) set.keys.push_back(option.key);
  key_sets_.push_back(std::move(set));
}

void UnknownNames::note(const Scope& scope, std::string key, const Location& at) {
  if (scope.plugin_known) unknown_.push_back({key_sets_.size() - 1, std::move(key), at});
}

void UnknownNames::report(const Node& root, Diagnostics& diagnostics) const {
  report_keys(diagnostics);
  report_top(root, diagnostics);
}

void UnknownNames::report_keys(Diagnostics& diagnostics) const {
  for (const UnknownKey& unknown : unknown_) {
    std::string message = "unknown key " + in_quotes(unknown.key) + " in " + key_sets_[unknown.section].label;
    if (worth_a_suggestion(diagnostics)) message += suggest_key(unknown.key, unknown.section, key_sets_);
    diagnostics.add(unknown.at, std::move(message));
  }
}

void UnknownNames::report_top(const Node& root, Diagnostics& diagnostics) const {
  for (const Member& member : root.members) {
    const bool dotted = member.key.find('.') != std::string::npos;  // a quoted key names no nested section
    if (!dotted && is_section(member.key)) continue;
    const Node& value = member.value;
    const bool section =
        value.kind == Node::Kind::table ||
        (value.kind == Node::Kind::list && !value.items.empty() && value.items[0].kind == Node::Kind::table);
    std::string message = section ? "unknown section [" + printable(member.key, 60) + "]"
                                  : "unknown key " + in_quotes(member.key) + " outside any section";
    if (worth_a_suggestion(diagnostics))
      message += section ? suggest_section(member.key, key_sets_)
                         : suggest_key(member.key, key_sets_.size(), key_sets_);
    diagnostics.add(member.at, std::move(message));
  }
}

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
  const RenamedKey* const renamed = find_renamed(scope.rule.name + "." + key, text_as_toml(member.value));
  if (renamed && (!entry || renamed->new_path == entry->path)) return report(member.at, renamed->refusal());
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

// ------------------------------------------------------------ all sections

class Resolver {
 public:
  Resolver(const Node& root, const std::shared_ptr<const Source>& main, const PluginCatalog& catalog,
           Diagnostics& diagnostics)
      : root_(root),
        diagnostics_(diagnostics),
        plugins_(main, catalog, diagnostics),
        entries_(main, plugins_, unknown_, diagnostics) {}

  ResolvedRecipe run() {
    for (const SectionRule& rule : core_sections()) resolve_rule(rule);
    unknown_.report(root_, diagnostics_);
    out_.entries = std::move(entries_.all());
    for (std::size_t i = 0; i < out_.entries.size(); ++i) out_.by_path.emplace(out_.entries[i].path, i);
    return std::move(out_);
  }

 private:
  // --- which tables of the tree belong to a rule

  const Node* find(std::string_view path) const {
    const Node* node = &root_;
    for (const std::string_view part : split(path, '.')) {
      const Member* const member = node->kind == Node::Kind::table ? node->find(part) : nullptr;
      if (!member) return nullptr;
      node = &member->value;
    }
    return node;
  }

  // Says whether a value is the bare text: `--set tier={}` takes the table out, as `--set observer=[]` does
  // those of a list.
  static bool is_bare(const Node* node, std::string_view text) {
    return node && node->kind == Node::Kind::bare && trim(node->text) == text;
  }

  void resolve_rule(const SectionRule& rule) {
    const Node* node = find(rule.name);
    if (!rule.list && is_bare(node, "{}")) node = nullptr;
    if (rule.list) return resolve_list(rule, node);
    if (node && node->kind != Node::Kind::table) {
      unknown_.declare(rule);
      std::string meant = node->kind == Node::Kind::list ? "; write it with single brackets" : "";
      for (const Option& option : rule.schema.options())
        if (meant.empty()) meant = chosen_by(*node, option);
      return report(node->at,
                    "wrong type for " + rule.label() + ": expected table, got " + describe(*node) + meant);
    }
    resolve_section(rule, rule.name, node);
    if (!rule.table_kind.empty() && node)
      for (const Member& member : node->members)
        if (member.value.kind == Node::Kind::table) resolve_plugin_table(rule, member);
  }

  // Resolves [comm.ucx]: options of a plugin that has no section of its own.
  void resolve_plugin_table(const SectionRule& rule, const Member& member) {
    Scope scope{rule, rule.name + "." + member.key, &member.value, member.key, false,
                {},   entries_.all().size()};
    const std::optional<Schema> schema = plugins_.find(rule.table_kind, member.key, member.at);
    scope.plugin_known = schema.has_value();
    if (schema)
      for (const Option& option : schema->options())
        scope.declared.push_back({option, rule.table_kind + " plugin " + in_quotes(member.key)});
    resolve_declared(scope);
  }

  void resolve_list(const SectionRule& rule, const Node* node) {
    const bool bare_empty = is_bare(node, "[]");
    const bool empty = !node || bare_empty || (node->kind == Node::Kind::list && node->items.empty());
    if (!node && rule.at_least_one) return resolve_section(rule, rule.name + ".0", nullptr);
    if (empty) {
      if (node && rule.at_least_one) out_.emptied.push_back(rule.name);
      return unknown_.declare(rule);
    }
    if (node->kind != Node::Kind::list) {
      unknown_.declare(rule);
      const bool table = node->kind == Node::Kind::table;
      return report(node->at, "wrong type for " + rule.label() + ": expected list of tables, got " +
                                  describe(*node) + (table ? "; write it with double brackets" : ""));
    }
    for (std::size_t i = 0; i < node->items.size(); ++i) {
      const Node& item = node->items[i];
      if (item.kind == Node::Kind::table)
        resolve_section(rule, rule.name + "." + std::to_string(i), &item);
      else
        report(item.at, "wrong type in " + rule.label() + ": expected table, got " + describe(item));
    }
  }

  // --- one section

  void resolve_section(const SectionRule& rule, std::string path, const Node* table) {
    Scope scope{rule, std::move(path), table, "", true, {}, entries_.all().size()};
    for (const Option& option : rule.schema.options()) scope.declared.push_back({option, "core"});
    if (!rule.plugin_kind.empty()) plugins_.add(scope);
    resolve_declared(scope);
  }

  void resolve_declared(Scope& scope) {
    entries_.add(scope);
    const Location at = scope.table ? scope.table->at : Location{};
    out_.sections.push_back(
        {scope.path, &scope.rule, scope.plugin, at, scope.first, entries_.all().size() - scope.first});
  }

  void report(Location at, std::string message) { diagnostics_.add(std::move(at), std::move(message)); }

  const Node& root_;
  Diagnostics& diagnostics_;
  ResolvedRecipe out_;  // its entries are moved in at last
  UnknownNames unknown_;
  PluginOptions plugins_;
  SectionEntries entries_;
};

}  // namespace

ResolvedRecipe resolve(const Node& root, const std::shared_ptr<const Source>& main,
                       const PluginCatalog& catalog, Diagnostics& diagnostics) {
  return Resolver(root, main, catalog, diagnostics).run();
}

}  // namespace prun::recipe
