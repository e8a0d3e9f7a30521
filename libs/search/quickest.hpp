// Settles what a recipe leaves open by `auto`, by the time that a step is predicted to take.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "search/timed_settings.hpp"

namespace prun {

struct Quickest {
  Recipe recipe;     // recipe with everything settled
  std::string said;  // the choice and the times in one line; empty if the recipe leaves nothing open
};

// Plans each way, and returns the quickest of those that are not refused; it returns the usual one if some
// cannot be predicted, and if all are refused, so that the next planning says why. `costs` is that of
// forecast().
Quickest choose_quickest(const Recipe& recipe, PluginHost& plugins,
                         const std::optional<std::filesystem::path>& costs = {});

}  // namespace prun
