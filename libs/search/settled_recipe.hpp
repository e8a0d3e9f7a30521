// Settles a recipe, so that it leaves nothing to `auto`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"

namespace prun {

struct SettledRecipe {
  Recipe recipe;
  std::vector<std::string> said;  // what was chosen, and why; nothing if the recipe leaves nothing open
};

// Settles a recipe that names its device: what it leaves open is settled as in the resumed run, and otherwise
// by the time that a step is predicted to take. `costs` is that of forecast().
SettledRecipe settle(const Recipe& recipe, PluginHost& plugins,
                     const std::optional<std::filesystem::path>& costs);

}  // namespace prun
