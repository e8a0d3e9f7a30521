// Writes what a recipe may hold as a JSON schema: editors check and complete recipes by it while they are
// written.
#pragma once

#include <string>

#include "recipe/catalog.hpp"

namespace prun::recipe {

// Returns the schema of the core's options and those of all plugins the catalog names, in JSON Schema draft
// 7, which TOML language servers take. What concerns several keys (batch arithmetic, values from an include
// or a config.json) is left to prun check.
std::string json_schema(const PluginCatalog& catalog);

}  // namespace prun::recipe
