// A search that may look at this machine: kernels of the best are measured, and the best are trained. What it
// finds then depends on how long these took, so it need not be the same twice.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/tune/tune.hpp"

namespace prun {

struct HereRequest {
  std::optional<std::filesystem::path> costs;  // as known_costs() takes it
  double measured_seconds = 0;                 // 0: nothing is measured
  std::size_t tried = 0;                       // so many of the best are trained
  std::string program;                         // by which ranks are started
};

// Throws bad_input where one of the two is asked for and the recipe's device is not here.
TuneResult tune_here(const Recipe& recipe, PluginHost& plugins, const TuneRequest& request,
                     const HereRequest& here);

}  // namespace prun
