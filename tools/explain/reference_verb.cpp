// Implements prun reference: it lists all keys of recipes.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "base/json.hpp"
#include "cli/command_table.hpp"
#include "explain/explain.hpp"
#include "prun/error.hpp"
#include "recipe/schema.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- json schema
// Writes what a recipe may hold as a JSON schema: editors check and complete recipes by it while they are
// written.

// These keys of [model] name files that give the other keys that it requires.
constexpr std::string_view model_givers[] = {"config", "init"};
constexpr std::string_view include_key = "include";

std::string_view json_type(OptionType type) {
  switch (type) {
    case OptionType::integer: return "integer";
    case OptionType::real: return "number";
    case OptionType::boolean: return "boolean";
    default: return "string";
  }
}

void write_value(JsonWriter& json, const Value& value) {
  const auto list = [&](const auto& elements) {
    json.begin_array();
    for (const auto& element : elements) json.value(element);
    json.end_array();
  };
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>)
          list(held);
        else
          json.value(held);
      },
      value);
}

void write_names(JsonWriter& json, std::string_view key, const std::vector<std::string>& names) {
  json.name(key).begin_array();
  for (const std::string& name : names) json.value(name);
  json.end_array();
}

// Writes type, range and choices of one value, or of an element of a list.
void write_limits(JsonWriter& json, const Option& option) {
  const OptionType type = element_of(option.type);
  json.member("type", json_type(type));
  if (type == OptionType::choice) write_names(json, "enum", option.choices);
  if (type == OptionType::size) json.member("pattern", "^\\s*([0-9.]+\\s*([KMGT]i?)?B?)?\\s*$");
  if (option.low) json.member("minimum", *option.low);
  if (option.high) json.member("maximum", *option.high);
}

void write_option(JsonWriter& json, const Option& option) {
  json.begin_object().member("description", option.help);
  if (option.type == OptionType::names) {
    json.name("type").begin_array().value("string").value("array").end_array();
    json.name("items").begin_object();
    write_limits(json, option);
    json.end_object();
  } else if (is_list(option.type)) {
    json.member("type", "array").name("items").begin_object();
    write_limits(json, option);
    json.end_object();
  } else {
    write_limits(json, option);
  }
  if (option.presence == Presence::has_default) {
    json.name("default");
    write_value(json, option.default_value);
  }
  json.end_object();
}

using Options = std::vector<Option>;

// Returns the options whose keys begin with the table, by what follows.
Options below(const Options& options, const std::string& table) {
  Options found;
  for (const Option& option : options)
    if (option.key.starts_with(table + ".")) {
      found.push_back(option);
      found.back().key.erase(0, table.size() + 1);
    }
  return found;
}

// Writes members of "properties": one for each key, a dotted key in its table.
void write_options(JsonWriter& json, const Options& options) {
  std::set<std::string> tables;
  for (const Option& option : options) {
    const std::size_t dot = option.key.find('.');
    if (option.key == "*") continue;
    if (dot == std::string::npos) {
      json.name(option.key);
      write_option(json, option);
    } else if (const std::string table = option.key.substr(0, dot); tables.insert(table).second) {
      json.name(table).begin_object().member("type", "object").name("properties").begin_object();
      write_options(json, below(options, table));
      json.end_object().member("additionalProperties", false).end_object();
    }
  }
}

// Writes what names other than the declared ones may stand for.
void write_others(JsonWriter& json, const Options& options) {
  const auto any = std::find_if(options.begin(), options.end(), [](const Option& o) { return o.key == "*"; });
  json.name("additionalProperties");
  if (any == options.end())
    json.value(false);
  else
    write_option(json, *any);
}

std::vector<std::string> required_of(const Schema& schema) {
  std::vector<std::string> keys;
  for (const Option& option : schema.options())
    if (option.presence == Presence::required) keys.push_back(option.key);
  return keys;
}

class SchemaWriter {
 public:
  explicit SchemaWriter(const PluginCatalog& catalog) : catalog_(catalog) {}

  std::string run() {
    json_.begin_object().member("$schema", "http://json-schema.org/draft-07/schema#");
    json_.member("title", "Recipe of prun").member("type", "object").name("properties").begin_object();
    json_.name(include_key).begin_object();
    json_.member("description", "Recipes that this one changes, by paths relative to it");
    json_.member("type", "array")
        .name("items")
        .begin_object()
        .member("type", "string")
        .end_object()
        .end_object();
    write_sections("");
    json_.end_object().member("additionalProperties", false);
    write_required();
    return json_.end_object().take();
  }

 private:
  // Writes the sections right inside the one of that name, as members.
  void write_sections(const std::string& outer) {
    const std::string prefix = outer.empty() ? "" : outer + ".";
    for (const SectionRule& rule : core_sections()) {
      const bool inside = rule.name.starts_with(prefix) && rule.name.size() > prefix.size();
      if (!inside || rule.name.find('.', prefix.size()) != std::string::npos) continue;
      json_.name(rule.name.substr(prefix.size())).begin_object().member("description", rule.help);
      if (rule.list) json_.member("type", "array").name("items").begin_object();
      write_section(rule);
      if (rule.list) json_.end_object();
      json_.end_object();
    }
  }

  void write_section(const SectionRule& rule) {
    const auto core = rule.schema.options();
    json_.member("type", "object");
    if (rule.list) write_names(json_, "required", required_of(rule.schema));
    if (rule.plugin_kind.empty() || catalog_.names(rule.plugin_kind).empty())
      write_keys(rule, {core.begin(), core.end()});
    else
      write_by_plugin(rule);
  }

  void write_keys(const SectionRule& rule, const Options& options) {
    json_.name("properties").begin_object();
    write_options(json_, options);
    write_sections(rule.name);
    if (!rule.table_kind.empty()) write_tables(rule.table_kind);
    json_.end_object();
    write_others(json_, options);
  }

  // Writes a table such as [comm.ucx] for each plugin of the kind.
  void write_tables(const std::string& kind) {
    for (const std::string& name : catalog_.names(kind)) {
      const Schema* const schema = catalog_.schema(kind, name);
      if (!schema) continue;
      const Options options(schema->options().begin(), schema->options().end());
      json_.name(name)
          .begin_object()
          .member("description", catalog_.help(kind, name))
          .member("type", "object");
      json_.name("properties").begin_object();
      write_options(json_, options);
      json_.end_object();
      write_others(json_, options);
      json_.end_object();
    }
  }

  // Writes a section by its plugin, which decides what keys there are. If none is named and none is the
  // default, something else names it, and any key may be one of its own.
  void write_by_plugin(const SectionRule& rule) {
    const Option& plugin = *rule.schema.find("plugin");
    const bool by_default = plugin.presence == Presence::has_default;
    std::vector<std::string> names = catalog_.names(rule.plugin_kind);
    const std::string unnamed = by_default ? std::get<std::string>(plugin.default_value) : "";
    if (by_default && std::find(names.begin(), names.end(), unnamed) == names.end()) names.push_back(unnamed);
    json_.name("properties").begin_object().name("plugin").begin_object();
    json_.member("description", plugin.help).member("type", "string");
    write_names(json_, "enum", names);
    json_.end_object().end_object().name("allOf").begin_array();
    for (const std::string& name : names) write_case(rule, name, name == unnamed);
    if (plugin.presence == Presence::optional) write_case_of_none(rule);
    json_.end_array();
  }

  void write_case_of_none(const SectionRule& rule) {
    json_.begin_object().name("if").begin_object().name("not").begin_object();
    write_names(json_, "required", {"plugin"});
    json_.end_object().end_object().name("then").begin_object();
    write_keys(rule, {rule.schema.options().begin(), rule.schema.options().end()});
    json_.end_object().end_object();
  }

  void write_case(const SectionRule& rule, const std::string& name, bool unnamed) {
    const Schema* const schema = catalog_.schema(rule.plugin_kind, name);
    if (!schema) return;
    Options options(rule.schema.options().begin(), rule.schema.options().end());
    std::erase_if(options, [&](const Option& option) { return schema->find(option.key) != nullptr; });
    options.insert(options.end(), schema->options().begin(), schema->options().end());
    json_.begin_object().name("if").begin_object().name("properties").begin_object();
    json_.name("plugin").begin_object().member("const", name).end_object().end_object();
    if (!unnamed) write_names(json_, "required", {"plugin"});
    json_.end_object().name("then").begin_object();
    write_keys(rule, options);
    json_.end_object().end_object();
  }

  // Writes what the core requires, in a recipe that includes no other.
  void write_required() {
    std::vector<const SectionRule*> sections;
    std::vector<std::string> names;
    for (const SectionRule& rule : core_sections())
      if (!rule.list && !required_of(rule.schema).empty()) {
        sections.push_back(&rule);
        names.push_back(rule.name);
      }
    json_.name("if").begin_object().name("not").begin_object();
    write_names(json_, "required", {std::string(include_key)});
    json_.end_object().end_object().name("then").begin_object();
    write_names(json_, "required", names);
    json_.name("properties").begin_object();
    for (const SectionRule* rule : sections) {
      json_.name(rule->name).begin_object();
      write_required_keys(*rule);
      json_.end_object();
    }
    json_.end_object().end_object();
  }

  void write_required_keys(const SectionRule& rule) {
    const std::vector<std::string> keys = required_of(rule.schema);
    if (rule.name != "model") return write_names(json_, "required", keys);
    json_.name("anyOf").begin_array().begin_object();
    write_names(json_, "required", keys);
    json_.end_object();
    for (const std::string_view giver : model_givers) {
      json_.begin_object();
      write_names(json_, "required", {std::string(giver)});
      json_.end_object();
    }
    json_.end_array();
  }

  const PluginCatalog& catalog_;
  JsonWriter json_;
};

// Returns the schema of the core's options and those of all plugins the catalog names, in JSON Schema draft
// 7, which TOML language servers take. What concerns several keys (batch arithmetic, values from an include
// or a config.json) is left to prun check.
std::string json_schema(const PluginCatalog& catalog) { return SchemaWriter(catalog).run(); }

}  // namespace
}  // namespace prun::recipe

namespace prun {
namespace {

// ------------------------------------------------------------------- reference verb

int reference_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  const bool schema = arguments.has("--json-schema");
  std::fputs(
      (schema ? recipe::json_schema(plugins.catalog()) + "\n" : recipe::reference_markdown(plugins.catalog()))
          .c_str(),
      stdout);
  return 0;
}

}  // namespace

std::vector<Command> reference_verb() {
  return {{"reference",
           "",
           "all keys as Markdown",
           {{"--json-schema", "", "as a schema by which editors check recipes (Even Better TOML, taplo)"}},
           reference_command}};
}

}  // namespace prun
