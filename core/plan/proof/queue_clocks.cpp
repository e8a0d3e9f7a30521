#include "plan/proof/queue_clocks.hpp"

#include <algorithm>

#include "plan/proof/check_failure.hpp"

namespace prun {

QueueClocks::QueueClocks(std::vector<std::int64_t> calls)
    : calls_(std::move(calls)), clocks_(calls_.size(), Clock(calls_.size(), -1)), history_(calls_.size()) {}

void QueueClocks::begin_step(std::int64_t step) {
  step_ = step;
  for (std::size_t q = 0; q < history_.size(); ++q)
    history_[q].resize(static_cast<std::size_t>((step + 1) * calls_[q]));
}

void QueueClocks::begin_call(std::int32_t queue, std::int32_t position, std::span<const Wait> waits) {
  now_ = {queue, first_ticket(queue) + position};
  Clock& clock = clocks_[queue];
  for (const Wait& wait : waits) join(clock, wait);
  clock[queue] = now_.ticket;
  clock_at(queue, now_.ticket) = clock;
}

void QueueClocks::join(Clock& clock, const Wait& wait) {
  const std::int64_t ticket = (step_ - wait.steps_ago) * calls_[wait.queue] + wait.call;
  if (ticket < 0) return;
  const Clock& other = clock_at(wait.queue, ticket);
  if (other.empty()) fail_check("a call waits for one that comes later in the order");
  for (std::size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
}

// Returns what was known to be done when a call began; empty before.
QueueClocks::Clock& QueueClocks::clock_at(std::int32_t queue, std::int64_t ticket) {
  Numbered<Clock>& of_queue = history_[queue];
  if (static_cast<std::size_t>(ticket) >= of_queue.size())
    fail_check("a call has a place that its queue, of ", calls_[queue], " calls a step, does not have");
  return of_queue[ticket];
}

}  // namespace prun
