#include "recipe/unknown_names.hpp"

#include "base/text.hpp"

namespace prun::recipe {
namespace {

// Says whether a suggestion is worth its search: problems beyond those shown are not read.
bool worth_a_suggestion(const Diagnostics& diagnostics) {
  return diagnostics.size() < 4 * Diagnostics::max_shown;
}

}  // namespace

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

}  // namespace prun::recipe
