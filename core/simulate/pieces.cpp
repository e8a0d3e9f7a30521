#include "simulate/pieces.hpp"

#include "simulate/events.hpp"

namespace prun {

void FedPieces::add(const Plan& plan, const std::vector<bool>& asynchronous) {
  const auto is = [&](std::int32_t queue) { return asynchronous[static_cast<std::size_t>(queue)]; };
  for (const Call& call : plan.calls)
    for (const Wait& wait : call.waits)
      if (is(call.queue) && is(wait.queue)) by_event_.insert({&plan, wait.queue, wait.call});
}

std::vector<FedPiece> FedPieces::of(const Plan& plan, const Call& call, std::int64_t step) const {
  std::vector<FedPiece> pieces;
  const auto stamp = [&] {
    if (stamps_) pieces.push_back({});
  };
  stamp();
  const std::vector<bool> edges = edges_of_exposure(plan, call);
  auto edge = edges.begin();
  for (const Wait& wait : call.waits) {
    if (*edge++) pieces.push_back({});
    if (step >= wait.steps_ago) pieces.push_back({&wait, 0});
    stamp();
  }
  if (*edge) pieces.push_back({});
  const std::size_t steps = plan.steps(call).size();
  const bool exchanges = plan.queues[static_cast<std::size_t>(call.queue)].communicates();
  if (exchanges && !stamps_) pieces.push_back({nullptr, steps});  // all of them at once
  for (std::size_t i = 0; i < steps && (stamps_ || !exchanges); ++i) {
    pieces.push_back({nullptr, exchanges ? i + 1 : 0});
    stamp();
  }
  if (by_event_.count({&plan, call.queue, call.position})) pieces.push_back({});
  pieces.push_back({});  // its counter
  return pieces;
}

}  // namespace prun
