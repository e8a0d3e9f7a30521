// Makes the options that a plugin is tried with: its defaults, and values for those that have none.
#pragma once

#include <string>

#include "conform/conformance.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Returns the plugin's schema with these values as defaults. `given` has the form of its section of a recipe.
// A model's options that are required and not given are tiny, where their names are known. Throws bad_input
// for keys and values that the schema does not have.
Schema trial_schema(const PluginNote& note, const std::string& given);
// Returns, for a model, the schema in which every option that is not given is tiny, defaults included.
Schema tiny_schema(const PluginNote& note, const std::string& given);

// Returns every option at its default.
DefaultOptions default_options(const Schema& schema);

// Returns the same schema with another default.
Schema with_default(const Schema& schema, const std::string& key, recipe::Value value);

}  // namespace prun
