// Predicts what a step will take, before it runs: the plan is simulated at the prices of a cost table.
#pragma once

#include "simulate/costs.hpp"

namespace prun {

struct Prediction {
  Simulation simulation;
  bool exchanges_alone = false;  // the price of some exchange is that of one with nothing beside it
  std::vector<std::string>
      notes;  // what it rests on, where that is less than measured figures of this machine
  // A step may take from so many times the predicted time to so many, where rates stand for what was not
  // measured here.
  std::optional<std::pair<double, double>> range = {};
  std::optional<double> host_bandwidth = {};  // of the host's memory, where it was counted: bytes a second
};

// `devices` are the names of a rank's devices; TablePrices explains `on_host`. Throws not_found for what the
// table says nothing about.
Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options = {},
                   Numbered<bool> on_host = {});

}  // namespace prun
