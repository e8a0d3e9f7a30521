// Computes how many steps a run has whose length is stated in epochs.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

struct RunLength {
  Recipe
      recipe;  // recipe with the resulting run.steps, and no epochs: reading a checkpoint of it needs no data
  std::string said;  // nothing if the recipe gives no epochs
};

// Opens the data, whose samples must be counted. Epochs end a run if they take fewer steps than run.steps.
RunLength with_run_length(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
