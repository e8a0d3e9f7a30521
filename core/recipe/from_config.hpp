// Reads options of the model from a config.json: keys that the recipe leaves out.
#pragma once

#include "recipe/catalog.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

// Where `model.config` names a file, or `model.init` a folder that has one, adds what it says to [model],
// the plugin included. Problems go to `diagnostics`; `sources` counts what texts values come from.
void take_config(Node& root, const PluginCatalog& catalog, std::size_t& sources, Diagnostics& diagnostics);

}  // namespace prun::recipe
