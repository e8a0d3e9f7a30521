// Finds what would make a recipe fit whose plan needs more memory than there is: changes that were planned,
// and fit.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/assemble/assembly.hpp"

namespace prun {

// Holds values of recipe keys, as --set takes them: {"batch.micro", "2"}.
using RecipeChange = std::vector<std::pair<std::string, std::string>>;

struct FittingChange {
  RecipeChange change;
  std::int64_t bytes = 0;              // bytes of the plan
  std::optional<double> step_seconds;  // predicted time, if there is a cost table
  bool exact = true;                   // whether the numbers stay the same, up to the order of sums
};

struct WhatFits {
  std::vector<FittingChange> changes;  // cheapest changes, fastest first
  int planned = 0;                     // number of changes tried
  int left = 0;                        // number of changes not tried, for lack of time
};

// `fits` throws an Error if a plan is not good enough for the calling command.
WhatFits what_fits(const Recipe& recipe, PluginHost& plugins,
                   const std::function<void(const Assembly&)>& fits,
                   std::chrono::milliseconds limit = std::chrono::milliseconds(3000));

// Writes lines that follow the refusal.
std::string to_text(const WhatFits& found);

// Returns what `make` returns. If that does not fit, its refusal says what would.
template <class Make>
auto or_what_fits(const Recipe& recipe, PluginHost& plugins, const std::function<void(const Assembly&)>& fits,
                  Make&& make) {
  try {
    return make();
  } catch (const DoesNotFit& error) {
    throw_error(error.code(), error.what(), "\n", to_text(what_fits(recipe, plugins, fits)));
  }
}

}  // namespace prun
