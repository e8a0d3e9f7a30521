#include "simulate/call_costs.hpp"

namespace prun {

const CallCost& CallCosts::of(const SimulatedRank& rank, const Call& call) {
  const auto [entry, fresh] = costs_.try_emplace({rank.plan, call.function, call.piece});
  CallCost& cost = entry->second;
  if (!fresh) return cost;
  cost.seconds = overhead_;
  if (cores_of_) cost.cores = cores_of_(rank.plan->queues[call.queue]);
  for (const PlannedStep& step : rank.plan->steps(call)) {
    cost.seconds += prices_.kernel(*rank.program, step);
    const Carried carried = prices_.carried(*rank.program, *rank.plan, step);
    cost.host_bytes += carried.host;
    cost.drive_bytes += carried.drives;
    if (carried.link >= 0) cost.links[carried.link] += carried.link_bytes;
  }
  return cost;
}

}  // namespace prun
