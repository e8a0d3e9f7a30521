// Explains what an option means: one on the command line, all of them in the documentation.
#pragma once

#include <string>
#include <string_view>

#include "recipe/recipe.hpp"
#include "recipe/schema.hpp"

namespace prun::recipe {

// Explains `path`, which names an option ("model.heads", "strategy.stage", "strategy.0.stage",
// "comm.ucx.tls"), a section ("optimizer"), a plugin of any kind ("tensor") or one of its options
// ("zero.stage"): its meaning, type, default, range and who declares it, for every plugin that does. Throws
// not_found, with the nearest name, if it is not declared.
std::string explain(std::string_view path, const PluginCatalog& catalog);

// Explains for one recipe: only the plugins it uses, with the value it has and where that comes from.
std::string explain(std::string_view path, const Recipe& recipe);

// Returns tables of all sections and of all plugins the catalog names, as Markdown.
std::string reference_markdown(const PluginCatalog& catalog);

// Returns one such table.
std::string reference_table(const Schema& schema);

}  // namespace prun::recipe
