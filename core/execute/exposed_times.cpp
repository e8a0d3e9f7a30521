#include "execute/exposed_times.hpp"

#include <utility>

namespace prun {
namespace {

// Says whether two queues note times by the same clock: the host's, or a device's.
bool same_clock(const QueueRun& a, const QueueRun& b) {
  return a.asynchronous == b.asynchronous && (!a.asynchronous || &a.device == &b.device);
}

}  // namespace

// Returns the waits that a queue has noted of a step that is done, and forgets them.
std::vector<HeldUp> ExposedTimes::take_waits(QueueRun& queue, std::int64_t step) const {
  if (!watchers_.notes_waits(queue.info, step)) return {};
  std::vector<HeldUp>& noted = queue.held_up_in(step);
  std::vector<HeldUp> all = noted;
  noted.clear();
  for (const BoundCall& bound : queue.calls) {
    HeldUp held;
    auto stamp = bound.side(step).edges.begin();
    for (std::size_t i = 0; i <= bound.waits.size() && !bound.side(step).edges.empty(); ++i) {
      if (!is_edge(queues_.plan(), *bound.call, i)) continue;
      raise(queue.device.read(*stamp++, &held.end));
      if (held.by >= 0) all.push_back(held);
      held = {counted_wait(queues_.plan(), *bound.call, i), held.end, 0};
    }
  }
  return all;
}

// Waits of a queue with another clock than the computing queue count as communication: the two times cannot
// be compared.
double ExposedTimes::take(std::int64_t step) {
  std::vector<HeldUp> computing;
  Numbered<std::vector<HeldUp>> communicating(before_.size());
  const QueueRun* computes = nullptr;
  for (auto& queue : queues_.all()) {
    std::vector<HeldUp> waits = take_waits(*queue, step);
    if (queue->info.communicates()) {
      communicating[queue->index] = std::move(waits);
    } else if (!waits.empty()) {
      computes = queue.get();
      computing.insert(computing.end(), waits.begin(), waits.end());
    }
  }
  std::swap(before_, communicating);
  if (!computes) return 0;
  for (auto& queue : queues_.all()) {
    std::vector<HeldUp>& both = communicating[queue->index];
    const std::vector<HeldUp>& now = before_[queue->index];
    both.insert(both.end(), now.begin(), now.end());
    if (!same_clock(*queue, *computes)) both.clear();
  }
  return exposed_communication(computing, communicating);
}

}  // namespace prun
