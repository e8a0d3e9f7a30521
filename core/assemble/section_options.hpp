// A recipe section, or a schema's defaults, as a plugin sees them.
#pragma once

#include <string>
#include <vector>

#include "prun/options.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Every option of a schema at its default, for plugins that are tried without a recipe.
class DefaultSection {
 public:
  explicit DefaultSection(Schema schema) : schema_(std::move(schema)) {}
  // Reading an option that has no default is a bad_input Error.
  const recipe::Value& value(std::string_view key) const;
  std::vector<std::string> required() const;

 private:
  Schema schema_;
};

// What they are made from must outlive them.
OptionsApi options_of(const RecipeSection& section);
OptionsApi options_of(const DefaultSection& section);

}  // namespace prun
