#include "sim/predict.hpp"

namespace prun {

Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table, const std::string& device,
                   const Machine& here) {
  TablePrices prices(table, device);
  const Simulation simulation = simulate(ranks, prices);
  Prediction prediction{simulation, prices.exchanges_alone(), prices.notes()};
  if (table.machine != here)
    prediction.notes.push_back("figures of another machine: " + to_text(table.machine) + "; this is " +
                               to_text(here));
  return prediction;
}

}  // namespace prun
