#include "recipe/plugin_options.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/suggest.hpp"
#include "recipe/typed_value.hpp"

namespace prun::recipe {
namespace {

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

}  // namespace

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

}  // namespace prun::recipe
