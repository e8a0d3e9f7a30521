// Predicts a step by simulating its plan with a cost table. Example: predict() of two ranks with a table
// measured on another number of threads returns step_seconds and a note that says so.
#pragma once

#include "estimate/costs.hpp"
#include "estimate/simulate.hpp"

namespace prun {

struct Prediction {
  Simulation simulation;
  bool exchanges_alone = false;    // some collective's time was measured without concurrent kernels
  std::vector<std::string> notes;  // what was not measured on this machine as it is
  // Factors within which the step's time is expected if rates replace measurements.
  std::optional<std::pair<double, double>> range = {};
  std::optional<double> host_bandwidth = {};  // bytes a second, if known
};

// `devices`: names of a rank's devices. `on_host`: see TablePrices. Throws not_found for figures that the
// table lacks.
Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options = {},
                   Numbered<bool> on_host = {});

}  // namespace prun
