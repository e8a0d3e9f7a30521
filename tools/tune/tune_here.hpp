// Searches with this machine: kernels of the best layouts are measured, and the best are trained. The result
// then depends on how long these took, so it need not be the same twice.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "search/tune.hpp"

namespace prun {

struct HereRequest {
  std::optional<std::filesystem::path> costs;  // as for known_costs()
  double measured_seconds = 0;                 // 0: nothing is measured
  std::size_t tried = 0;                       // counts the best that are trained
  std::string program;                         // the one by which ranks are started
};

// Throws bad_input where measuring or training is wanted and the recipe's device is not here.
TuneResult tune_here(const Recipe& recipe, PluginHost& plugins, const TuneRequest& request,
                     const HereRequest& here);

}  // namespace prun
