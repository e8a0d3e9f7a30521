#include "inspect/recorder.hpp"

#include <algorithm>

namespace prun {
Recorder::Recorder(const Plan& plan, std::int64_t steps) : rings_(plan.queues.size()) {
  PRUN_CHECK(steps > 0, steps, " steps");
  std::vector<std::size_t> events(plan.queues.size(), 0);
  for (const Call& call : plan.calls) events[static_cast<std::size_t>(call.queue)] += 1 + call.waits.size();
  for (std::size_t q = 0; q < rings_.size(); ++q)
    rings_[q].slots.resize(events[q] * static_cast<std::size_t>(steps));
}

void Recorder::begin_call(std::int32_t queue, const Call&, std::int64_t, double at) noexcept {
  rings_[static_cast<std::size_t>(queue)].begin = at;
}
void Recorder::end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept {
  end(queue, call, -1, step, at);
}
void Recorder::begin_wait(std::int32_t queue, const Call&, const Wait&, std::int64_t, double at) noexcept {
  rings_[static_cast<std::size_t>(queue)].begin = at;
}
void Recorder::end_wait(std::int32_t queue, const Call& call, const Wait& wait, std::int64_t step,
                        double at) noexcept {
  end(queue, call, wait.queue, step, at);
}

void Recorder::end(std::int32_t queue, const Call& call, std::int32_t waits_for, std::int64_t step,
                   double at) noexcept {
  Ring& ring = rings_[static_cast<std::size_t>(queue)];
  ring.slots[ring.written++ % ring.slots.size()] = {queue, call.position, waits_for, step, ring.begin, at};
}

std::vector<Event> Recorder::events() const {
  std::vector<Event> all;
  for (const Ring& ring : rings_) {
    const std::uint64_t kept = std::min<std::uint64_t>(ring.written, ring.slots.size());
    for (std::uint64_t i = ring.written - kept; i < ring.written; ++i)
      all.push_back(ring.slots[i % ring.slots.size()]);
  }
  return all;
}

std::uint64_t Recorder::lost() const {
  std::uint64_t lost = 0;
  for (const Ring& ring : rings_)
    if (ring.written > ring.slots.size()) lost += ring.written - ring.slots.size();
  return lost;
}

}  // namespace prun
