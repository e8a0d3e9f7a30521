#include "search/recipe_text.hpp"

#include <utility>

#include "recipe/core_schema.hpp"
#include "recipe/toml_writer.hpp"

namespace prun {

std::string toml_without(const Recipe& recipe, std::string_view left_out,
                         const std::function<std::string(const recipe::Entry&)>& comment) {
  recipe::TomlWriter out;
  for (const recipe::SectionRule& rule : recipe::core_sections())
    if (rule.list && rule.at_least_one && recipe.sections(rule.name).empty()) out.empty_list(rule.name);
  for (const RecipeSection& section : recipe.all_sections()) {
    if (section.name() == left_out || section.path() == left_out) continue;
    bool begun = false;
    for (const recipe::Entry& entry : section.entries()) {
      if (!entry.value) continue;
      // A group's default means less than the same value written out: a decay that is written applies to
      // norms too.
      if (section.name() == "optimizer.group" && !entry.at.source) continue;
      if (!std::exchange(begun, true))
        section.label().starts_with("[[") ? out.item(section.name()) : out.table(section.path());
      out.value(entry.key, *entry.value, comment(entry));
    }
  }
  return out.text();
}

}  // namespace prun
