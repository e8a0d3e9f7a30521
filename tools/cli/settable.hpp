// Lists what may follow --set, for shells that complete it.
#pragma once

#include <string>
#include <vector>

#include "recipe/catalog.hpp"

namespace prun::recipe {

struct SettableKey {
  std::string path;                 // path such as "optimizer.lr", "strategy.0.stage"
  std::vector<std::string> values;  // values to choose from; empty: they are unknown
};

// Returns the keys of the core and of all plugins that the catalog names, in order of their paths. Lists give
// their first items.
std::vector<SettableKey> settable_keys(const PluginCatalog& catalog);

}  // namespace prun::recipe
