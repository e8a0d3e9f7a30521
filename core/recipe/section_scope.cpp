#include "recipe/section_scope.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun::recipe {

std::string Scope::label() const {
  if (!rule.list) return "[" + path + "]";
  return plugin.empty() ? rule.label() : rule.label() + " " + in_quotes(plugin);
}

bool is_section(std::string_view path) {
  const auto rules = core_sections();
  return std::any_of(rules.begin(), rules.end(), [path](const SectionRule& r) { return r.name == path; });
}

std::string chosen_by(const Node& node, const Option& option) {
  const bool text = node.kind == Node::Kind::string || node.kind == Node::Kind::bare;
  const auto& choices = option.choices;
  if (!text || std::find(choices.begin(), choices.end(), trim(node.text)) == choices.end()) return {};
  return "; it is a choice of " + in_quotes(option.key);
}

}  // namespace prun::recipe
