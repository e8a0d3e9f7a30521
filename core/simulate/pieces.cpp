#include "simulate/pieces.hpp"

#include "simulate/events.hpp"

namespace prun {

void FedPieces::add(const Plan& plan, const Numbered<bool>& asynchronous) {
  Numbered<Numbered<bool>>& marks = by_event_[&plan];
  marks.clear();
  for (const QueueInfo& queue : plan.queues) marks.emplace_back(queue.calls);
  for (const Call& call : plan.calls)
    for (const Wait& wait : call.waits)
      if (asynchronous[call.queue] && asynchronous[wait.queue]) marks[wait.queue][wait.call] = true;
}

void FedPieces::list(const Plan& plan, const Call& call, std::int64_t step,
                     std::vector<FedPiece>& pieces) const {
  pieces.clear();
  const auto stamp = [&] {
    if (stamps_) pieces.push_back({});
  };
  stamp();
  for (std::size_t i = 0; i < call.waits.size(); ++i) {
    const Wait& wait = call.waits[i];
    if (is_edge(plan, call, i)) pieces.push_back({});
    if (step >= wait.steps_ago) pieces.push_back({&wait, 0});
    stamp();
  }
  if (is_edge(plan, call, call.waits.size())) pieces.push_back({});
  const std::size_t steps = plan.steps(call).size();
  const bool exchanges = plan.queues[call.queue].communicates();
  if (exchanges && !stamps_) pieces.push_back({nullptr, steps});  // all of them at once
  for (std::size_t i = 0; i < steps && (stamps_ || !exchanges); ++i) {
    pieces.push_back({nullptr, exchanges ? i + 1 : 0});
    stamp();
  }
  const Numbered<bool>& marks = by_event_.at(&plan)[call.queue];
  if (marks[call.position]) pieces.push_back({});
  pieces.push_back({});  // its counter
}

}  // namespace prun
