// Writes texts about options.
#include "explain/explain.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "explain/op_text.hpp"
#include "prun/error.hpp"
#include "recipe/diagnostics.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- explain

std::string describe_option(const std::string& path, const Option& option, const std::string& declared_by) {
  const std::string range = describe_range(option);
  return path + "\n  " + option.help + "\n  " + std::string(name_of(option.type)) + ", " +
         describe_default(option) + (range.empty() ? "" : ", " + range) + "\n  declared by " + declared_by +
         "\n";
}

// Removes indices: "strategy.0.stage" means the same as "strategy.stage" when there is no recipe.
std::string without_indices(std::string_view path) {
  std::string out;
  for (const std::string_view part : split(path, '.')) {
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!index) out += (out.empty() ? "" : ".") + std::string(part);
  }
  return out;
}

// Returns the innermost section that contains the path.
const SectionRule* rule_of(std::string_view path) {
  const SectionRule* found = nullptr;
  for (const SectionRule& rule : core_sections()) {
    const bool inside = rule.name.size() <= path.size() && keys_collide(rule.name, path);
    if (inside && (!found || rule.name.size() > found->name.size())) found = &rule;
  }
  return found;
}

struct Declarer {
  std::string name;
  std::string prefix;  // prefix of its keys within the section: "ucx." of [comm.ucx]
  Schema schema;
};

// Returns the kinds of plugins whose options a section takes.
const std::string& kind_of(const SectionRule& rule) {
  return rule.plugin_kind.empty() ? rule.table_kind : rule.plugin_kind;
}

std::vector<Declarer> declarers_of(const SectionRule& rule, const PluginCatalog& catalog) {
  std::vector<Declarer> all = {{"core", "", rule.schema}};
  if (kind_of(rule).empty()) return all;
  for (const std::string& name : catalog.names(kind_of(rule)))
    if (const Schema* const schema = catalog.schema(kind_of(rule), name))
      all.push_back(
          {kind_of(rule) + " plugin " + in_quotes(name), rule.table_kind.empty() ? "" : name + ".", *schema});
  return all;
}

// Says whether the option is meant: by the key itself, a table of keys, or the whole section.
bool asked_for(const std::string& option, std::string_view key) {
  const bool free_name = option == "*" && key.find('.') == std::string_view::npos;
  return key.empty() || free_name || option == key || option.starts_with(std::string(key) + ".");
}

// Explains options; returns "" if nothing declares the key.
std::string explain_options(const std::string& section, std::string_view key,
                            std::span<const Declarer> declarers) {
  std::string out;
  for (const Declarer& declarer : declarers)
    for (const Option& option : declarer.schema.options()) {
      const std::string full = declarer.prefix + option.key;
      if (asked_for(full, key))
        out += describe_option(section + "." + (full == "*" && !key.empty() ? std::string(key) : full),
                               option, declarer.name);
    }
  return out;
}

// Says how a recipe names a plugin of the section's kind, and where it gives it options.
std::string use_of(const SectionRule& rule, const std::string& name) {
  if (rule.table_kind.empty()) return rule.label() + " plugin = \"" + name + "\"";
  return "options in [" + rule.name + "." + name + "]";
}

struct NamedPlugin {
  const SectionRule* rule = nullptr;
  Declarer declarer;
};

// Returns the plugins of that name, of all kinds.
std::vector<NamedPlugin> plugins_called(const std::string& name, const PluginCatalog& catalog) {
  std::vector<NamedPlugin> found;
  for (const SectionRule& rule : core_sections()) {
    if (kind_of(rule).empty()) continue;
    const std::vector<std::string> names = catalog.names(kind_of(rule));
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (const Schema* const schema = catalog.schema(kind_of(rule), name))
      found.push_back({&rule, {kind_of(rule) + " plugin " + in_quotes(name), "", *schema}});
  }
  return found;
}

// Explains a name such as "tensor" or "zero.stage": a plugin by its name, or an option of one.
std::string explain_plugins(std::string_view path, const PluginCatalog& catalog) {
  const std::string name(split(path, '.')[0]);
  const std::string_view key = path.substr(std::min(path.size(), name.size() + 1));
  std::string out;
  for (const NamedPlugin& plugin : plugins_called(name, catalog)) {
    const std::string place =
        plugin.rule->table_kind.empty() ? plugin.rule->name : plugin.rule->name + "." + name;
    if (key.empty())
      out += plugin.declarer.name + "\n  " + catalog.help(kind_of(*plugin.rule), name) + "\n  " +
             use_of(*plugin.rule, name) + "\n";
    out += explain_options(place, key, std::span(&plugin.declarer, 1));
  }
  return out;
}

// Returns a path such as "optimizer.lr": of the first section with such a key, or with the one of which it is
// an alias.
std::string keys_called(std::string_view name, const PluginCatalog& catalog) {
  const std::string behind_dot = "." + std::string(name);
  for (const SectionRule& rule : core_sections())
    for (const Declarer& declarer : declarers_of(rule, catalog)) {
      KeySet keys{rule.name, rule.label(), {}};
      for (const Option& option : declarer.schema.options())
        keys.keys.push_back(declarer.prefix + option.key);
      for (const std::string& key : keys.keys)
        if (key == name || key.ends_with(behind_dot)) return rule.name + "." + key;
      if (const std::string key = key_by_alias(name, keys); !key.empty()) return rule.name + "." + key;
    }
  return {};
}

[[noreturn]] void refuse_name(std::string_view name, const PluginCatalog& catalog) {
  std::vector<KeySet> sections;
  std::vector<std::string> plugins;
  for (const SectionRule& known : core_sections()) {
    sections.push_back({known.name, known.label(), {}});
    if (kind_of(known).empty()) continue;
    for (std::string& plugin : catalog.names(kind_of(known))) plugins.push_back(std::move(plugin));
  }
  if (const std::string keys = keys_called(name, catalog); !keys.empty())
    throw_error(ErrorCode::not_found, "no section of a recipe and no plugin is called ", in_quotes(name),
                "; a key is: prun explain ", keys);
  const std::string section = suggest_section(name, sections);
  throw_error(ErrorCode::not_found, "no section of a recipe and no plugin is called ", in_quotes(name),
              section.empty() ? did_you_mean(name, plugins) : section);
}

[[noreturn]] void refuse_key(std::string_view key, const std::string& place,
                             const std::vector<Declarer>& declarers) {
  KeySet keys{"", place, {}};
  for (const Declarer& declarer : declarers)
    for (const Option& option : declarer.schema.options()) keys.keys.push_back(declarer.prefix + option.key);
  throw_error(ErrorCode::not_found, "no option ", in_quotes(key), " is declared in ", place,
              suggest_key(key, 0, std::span(&keys, 1)));
}

[[noreturn]] void refuse(std::string_view path, const SectionRule* rule, const PluginCatalog& catalog) {
  const std::string name(split(path, '.')[0]);
  const std::string_view in_plugin = path.substr(std::min(path.size(), name.size() + 1));
  if (rule)
    refuse_key(path.substr(std::min(path.size(), rule->name.size() + 1)), rule->label(),
               declarers_of(*rule, catalog));
  std::vector<Declarer> declarers;
  for (const NamedPlugin& plugin : plugins_called(name, catalog)) declarers.push_back(plugin.declarer);
  if (declarers.empty()) refuse_name(name, catalog);
  refuse_key(in_plugin, declarers.front().name, declarers);
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

constexpr std::string_view where_paths_start =
    "Paths start from the folder that prun is started in. Two start from the recipe's own, since they make "
    "up "
    "the recipe: `include` and `[plugins] path`.\n";

std::string code_cell(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string default_cell(const Option& option) {
  if (option.presence != Presence::has_default) return describe_default(option);
  return code_cell(to_toml(option.default_value));
}

std::string range_cell(const Option& option) {
  if (option.type != OptionType::choice) return code_cell(option.range);
  std::string out;
  for (const std::string& choice : option.choices) out += (out.empty() ? "" : ", ") + code_cell(choice);
  return out;
}

// Returns the first section that takes plugins of the same kind.
const SectionRule& first_of_kind(const SectionRule& rule) {
  const auto rules = core_sections();
  return *std::find_if(rules.begin(), rules.end(),
                       [&](const SectionRule& other) { return kind_of(other) == kind_of(rule); });
}

std::string section_markdown(const SectionRule& rule, const PluginCatalog& catalog) {
  std::string out = "## `" + rule.label() + "`\n\n" + rule.help + "\n";
  if (!rule.schema.options().empty()) out += "\n" + reference_table(rule.schema);
  if (kind_of(rule).empty()) return out;
  if (const SectionRule& first = first_of_kind(rule); &first != &rule)
    return out + "\nAnd the options of its " + kind_of(rule) + " plugin, as in `" + first.label() + "`.\n";
  for (const std::string& name : catalog.names(kind_of(rule))) {
    const Schema* const schema = catalog.schema(kind_of(rule), name);
    if (!schema) continue;
    const std::string place = rule.table_kind.empty() ? "" : ", `[" + rule.name + "." + name + "]`";
    out += detail::concat("\n### ", kind_of(rule), " plugin `", name, "`", place, "\n\n");
    out += schema->options().empty() ? "No options.\n" : reference_table(*schema);
  }
  return out;
}

}  // namespace

std::string explain(std::string_view path, const PluginCatalog& catalog) {
  const std::string plain = without_indices(path);
  const SectionRule* const rule = rule_of(plain);
  std::string out;
  if (rule) {
    const std::string key = plain.substr(std::min(plain.size(), rule->name.size() + 1));
    if (key.empty()) out = rule->label() + "\n  " + rule->help + "\n";
    out += explain_options(rule->name, key, declarers_of(*rule, catalog));
  }
  out += explain_plugins(plain, catalog);
  if (out.empty()) refuse(plain, rule, catalog);
  return out;
}

std::string explain(std::string_view path, const Recipe& recipe) {
  std::string out;
  for (const RecipeSection& section : recipe.all_sections()) {
    for (const Entry& entry : section.entries()) {
      const std::string general = section.name() + "." + entry.key,
                        of_plugin = section.plugin() + "." + entry.key;
      const auto under = [path](std::string_view full) {
        return full == path || full.starts_with(std::string(path) + ".");
      };
      if (!under(entry.path) && !under(general) && !under(of_plugin)) continue;
      const std::string value = entry.value ? to_toml(*entry.value) : "absent";
      out += describe_option(entry.path, entry.option, entry.declared_by) + "  value " + value + ", from " +
             describe(entry.at) + "\n";
    }
  }
  if (out.empty()) throw_error(ErrorCode::not_found, "this recipe has no option ", in_quotes(path));
  return out;
}

std::string reference_table(const Schema& schema) {
  std::string out = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
  for (const Option& option : schema.options())
    out += "| `" + option.key + "` | " + std::string(name_of(option.type)) + " | " + default_cell(option) +
           " | " + range_cell(option) + " | " + cell(option.help) + " |\n";
  return out;
}

std::string reference_markdown(const PluginCatalog& catalog) {
  std::string out(where_paths_start);
  for (const SectionRule& rule : core_sections()) out += "\n" + section_markdown(rule, catalog);
  return out;
}

}  // namespace prun::recipe

namespace prun {
namespace {

// ------------------------------------------------------------------- explain verb
// Implements prun explain: it says what a key, a plugin or an op means.

// Explains the keys and plugins of that name; those of a recipe where the command names one.
std::string explain_key(const Arguments& arguments, const std::string& name, const std::string& recipe) {
  if (!recipe.empty()) return recipe::explain(name, *open_recipe(arguments, recipe).recipe);
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  return recipe::explain(name, plugins.catalog());
}

int explain_command(const Arguments& arguments) {
  const std::string &name = arguments.words[0],
                    recipe = arguments.words.size() == 2 ? arguments.words[1] : "";
  const std::string op = explain_op(described_ops(arguments, recipe), name);
  std::fputs(op.c_str(), stdout);
  try {
    std::fputs(explain_key(arguments, name, recipe).c_str(), stdout);
  } catch (const Error& error) {
    if (op.empty() || error.code() != ErrorCode::not_found) throw;
  }
  return 0;
}

}  // namespace

std::vector<Command> explain_verb() {
  return {
      {"explain",
       "NAME [RECIPE]",
       "what a key of a recipe (model.heads), a plugin (zero) or an op (linear) means, and what it is in a "
       "recipe",
       {},
       explain_command}};
}

}  // namespace prun
