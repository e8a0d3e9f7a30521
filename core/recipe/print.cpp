// Writes a resolved recipe as TOML.
#include <utility>

#include "recipe/recipe.hpp"
#include "recipe/toml_writer.hpp"

namespace prun::recipe {

std::string Recipe::resolved_toml() const {
  TomlWriter out;
  for (const std::string& name : resolved_->emptied) out.empty_list(name);
  for (const RecipeSection& section : all_sections()) {
    bool begun = false;
    for (const Entry& entry : section.entries()) {
      if (!entry.value) continue;
      if (!std::exchange(begun, true))
        section.label().starts_with("[[") ? out.item(section.name()) : out.table(section.path());
      out.value(entry.key, *entry.value, describe(entry.at));
    }
  }
  return out.text();
}

}  // namespace prun::recipe
