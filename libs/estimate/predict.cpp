#include "estimate/predict.hpp"

#include <algorithm>

#include "estimate/table_prices.hpp"

namespace prun {
namespace {

// Chooses how many steps to simulate: the last one must be typical, and the more steps overlap, the later
// that is.
SimulateOptions with_steps_for(std::span<const SimulatedRank> ranks, SimulateOptions options) {
  std::int64_t running = 2;
  for (const SimulatedRank& rank : ranks) running = std::max<std::int64_t>(running, rank.plan->running);
  options.steps += 2 * (running - 2);
  return options;
}

}  // namespace

Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options,
                   Numbered<bool> on_host) {
  const bool has_host = !on_host.empty();
  TablePrices prices(table, std::move(devices), std::move(on_host));
  // Simulate first: prices know which rates they used only afterwards.
  Prediction prediction{simulate(ranks, prices, with_steps_for(ranks, options)), prices.exchanges_alone(),
                        prices.notes()};
  prediction.range = prices.range();
  if (has_host && prices.host_bandwidth() > 0) prediction.host_bandwidth = prices.host_bandwidth();
  if (table.machine != here && !prediction.range)
    prediction.notes.push_back("figures of another machine: " + to_text(table.machine) + "; this is " +
                               to_text(here));
  return prediction;
}

}  // namespace prun
