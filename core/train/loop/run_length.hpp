// Computes how many steps a run has whose length is stated in epochs.
#pragma once

#include <string>

#include "train/assemble/plugin_host.hpp"

namespace prun {

struct RunLength {
  Recipe
      recipe;  // with run.steps as it comes out, and no epochs: a checkpoint of it needs no data to be read
  std::string said;  // nothing where the recipe says no epochs
};

// Opens the data, as their samples must be counted. Epochs end a run where they take fewer steps than
// run.steps.
RunLength with_run_length(const Recipe& recipe, PluginHost& plugins);

}  // namespace prun
