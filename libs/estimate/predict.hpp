// Predicts what a step will take, before it runs: the plan is simulated at the prices of a cost table.
#pragma once

#include "estimate/costs.hpp"
#include "estimate/simulate.hpp"

namespace prun {

struct Prediction {
  Simulation simulation;
  bool exchanges_alone = false;  // some price is that of an exchange with nothing beside it
  std::vector<std::string>
      notes;  // what it is based on, where that is less than figures measured on this machine
  // A step may take from so many times the predicted time to so many, if rates stand for what was not
  // measured here.
  std::optional<std::pair<double, double>> range = {};
  std::optional<double> host_bandwidth = {};  // bytes a second of host memory, if that was counted
};

// Predicts a step; `devices` are the names of a rank's devices; TablePrices explains `on_host`. Throws
// not_found for what is not in the table.
Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options = {},
                   Numbered<bool> on_host = {});

}  // namespace prun
