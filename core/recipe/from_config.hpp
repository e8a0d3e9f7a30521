// Reads options of the model from a config.json: keys that the recipe leaves out.
#pragma once

#include "recipe/catalog.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

// Adds to [model] what the file that `model.config` names, or the one in a folder that `model.init` names,
// says, the plugin included. Problems go to `diagnostics`; `sources` counts the texts that values come from.
void take_config(Node& root, const PluginCatalog& catalog, std::size_t& sources, Diagnostics& diagnostics);

}  // namespace prun::recipe
