// Texts about options.
#include "recipe/explain.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/suggest.hpp"

namespace prun::recipe {

namespace {

std::string describe_option(const std::string& path, const Option& option, const std::string& declared_by) {
  const std::string range = describe_range(option);
  return path + "\n  " + option.help + "\n  " + std::string(name_of(option.type)) + ", " +
         describe_default(option) + (range.empty() ? "" : ", " + range) + "\n  declared by " + declared_by +
         "\n";
}

// "strategy.0.stage" says the same as "strategy.stage" when no recipe is at hand.
std::string without_indices(std::string_view path) {
  std::string out;
  for (const std::string_view part : split(path, '.')) {
    const bool index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!index) out += (out.empty() ? "" : ".") + std::string(part);
  }
  return out;
}

// The innermost section that the path lies in.
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
  Schema schema;
};

std::vector<Declarer> declarers_of(const SectionRule& rule, const PluginCatalog& catalog) {
  std::vector<Declarer> all = {{"core", rule.schema}};
  if (rule.plugin_kind.empty()) return all;
  for (const std::string& name : catalog.names(rule.plugin_kind))
    if (const Schema* const schema = catalog.schema(rule.plugin_kind, name))
      all.push_back({rule.plugin_kind + " plugin " + in_quotes(name), *schema});
  return all;
}

// Whether the option is asked for: the key itself, a table of keys, or the whole section.
bool asked_for(const Option& option, std::string_view key) {
  return key.empty() || option.key == "*" || option.key == key ||
         option.key.starts_with(std::string(key) + ".");
}

[[noreturn]] void refuse(std::string_view path, const SectionRule* rule,
                         const std::vector<Declarer>& declarers) {
  if (!rule) {
    std::vector<KeySet> sections;
    for (const SectionRule& known : core_sections()) sections.push_back({known.name, known.label(), {}});
    throw_error(ErrorCode::not_found, "no section of a recipe is called ", in_quotes(split(path, '.')[0]),
                suggest_section(split(path, '.')[0], sections));
  }
  KeySet keys{rule->name, rule->label(), {}};
  for (const Declarer& declarer : declarers)
    for (const Option& option : declarer.schema.options()) keys.keys.push_back(option.key);
  const std::string key(path.substr(std::min(path.size(), rule->name.size() + 1)));
  throw_error(ErrorCode::not_found, "no option ", in_quotes(key), " is declared in ", rule->label(),
              suggest_key(key, 0, std::span(&keys, 1)));
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

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

std::string section_markdown(const SectionRule& rule, const PluginCatalog& catalog) {
  std::string out = "## `" + rule.label() + "`\n\n" + rule.help + "\n\n" + reference_table(rule.schema);
  if (rule.plugin_kind.empty()) return out;
  for (const std::string& name : catalog.names(rule.plugin_kind)) {
    const Schema* const schema = catalog.schema(rule.plugin_kind, name);
    if (!schema) continue;
    out += "\n### " + rule.plugin_kind + " plugin `" + name + "`\n\n";
    out += schema->options().empty() ? "No options.\n" : reference_table(*schema);
  }
  return out;
}

}  // namespace

std::string explain(std::string_view path, const PluginCatalog& catalog) {
  const std::string plain = without_indices(path);
  const SectionRule* const rule = rule_of(plain);
  if (!rule) refuse(plain, nullptr, {});
  const std::vector<Declarer> declarers = declarers_of(*rule, catalog);
  const std::string key = plain.substr(std::min(plain.size(), rule->name.size() + 1));
  std::string out = key.empty() ? rule->label() + "\n  " + rule->help + "\n" : "";
  for (const Declarer& declarer : declarers)
    for (const Option& option : declarer.schema.options())
      if (asked_for(option, key))
        out += describe_option(rule->name + "." + (option.key == "*" && !key.empty() ? key : option.key),
                               option, declarer.name);
  if (out.empty()) refuse(plain, rule, declarers);
  return out;
}

std::string explain(std::string_view path, const Recipe& recipe) {
  std::string out;
  for (const RecipeSection& section : recipe.all_sections()) {
    for (const Entry& entry : section.entries()) {
      const std::string general = section.name() + "." + entry.key;
      const auto under = [path](std::string_view full) {
        return full == path || full.starts_with(std::string(path) + ".");
      };
      if (!under(entry.path) && !under(general)) continue;
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
  std::string out;
  for (const SectionRule& rule : core_sections())
    out += (out.empty() ? "" : "\n") + section_markdown(rule, catalog);
  return out;
}

}  // namespace prun::recipe
