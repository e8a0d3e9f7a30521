// The options that a plugin is tried with: its defaults, and values for those that have none.
#pragma once

#include <string>

#include "conform/conformance.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// The plugin's schema with these values as defaults. `given`: as in its section of a recipe. Of a model, what
// is required and not given is tiny, where its name says what it is. Throws bad_input for keys and values
// that the schema does not have.
Schema trial_schema(const PluginNote& note, const std::string& given);
// Of a model: all that is not given is no larger than that.
Schema tiny_schema(const PluginNote& note, const std::string& given);

// Every option at its default.
DefaultOptions default_options(const Schema& schema);

// The same schema with another default.
Schema with_default(const Schema& schema, const std::string& key, recipe::Value value);

}  // namespace prun
