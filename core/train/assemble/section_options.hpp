// Shows a recipe section, or a schema's defaults, to a plugin.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "prun/options.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Gives every option of a schema at its default, for plugins that are tried without a recipe.
class DefaultSection {
 public:
  explicit DefaultSection(Schema schema) : schema_(std::move(schema)) {}
  const Schema& schema() const { return schema_; }
  std::vector<std::string> required() const;

 private:
  Schema schema_;
};

// Returns the options; what they are made from must outlive them.
OptionsApi options_of(const RecipeSection& section);
OptionsApi options_of(const DefaultSection& section);
// Returns the values of a recipe by their paths. Options::has() is false for a path without a value.
OptionsApi options_of(const Recipe& recipe);

// Gives the options of a plugin that a recipe names without a section for it: those of its table
// ([comm.ucx]), or its defaults.
class PluginOptions {
 public:
  explicit PluginOptions(RecipeSection table) : section_(std::move(table)) {}
  explicit PluginOptions(DefaultSection defaults) : section_(std::move(defaults)) {}

  // Returns the options, which live as long as this.
  OptionsApi api() const {
    return std::visit([](const auto& section) { return options_of(section); }, section_);
  }

 private:
  std::variant<RecipeSection, DefaultSection> section_;
};

}  // namespace prun
