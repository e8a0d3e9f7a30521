// What probes are told of queues that run their work later. Nobody is there when it runs: the device notes
// times, which are told once a step is done, and its tickets say how far a queue has come.
#include <algorithm>
#include <limits>
#include <utility>

#include "execute/executor.hpp"

namespace prun {

void Executor::set_clocks() {
  for (const auto& [queue, bound] : fed_)
    if (clocks_.count(&queue->device) == 0) clocks_[&queue->device] = clock_of(*queue);
}

// The clock of the queue's device against the probes': the closest of some tries.
double Executor::clock_of(QueueRun& queue) {
  DeviceInterface& device = queue.device;
  const OwnedStamp stamp(device);
  Counters reached(device, 1);
  double closest = std::numeric_limits<double>::infinity(), clock = 0;
  raise(device.attach(queue.handle));
  for (std::uint64_t attempt = 1; attempt <= 16; ++attempt) {
    const double before = probe_clock();
    raise(device.stamp(queue.handle, stamp.handle()));
    raise(device.write_counter(queue.handle, &reached[0], attempt));
    while (reached[0].load() < attempt) raise(device.check(queue.handle));
    const double after = probe_clock();
    double noted = 0;
    raise(device.read(stamp.handle(), &noted));
    if (after - before > closest) continue;
    closest = after - before;
    clock = (before + after) / 2 - noted;
  }
  return clock;
}

// Into how many parts a piece's exchanges are enqueued: one of all, unless each is to be timed.
std::size_t Executor::parts_of(const BoundPiece& piece) const {
  return each_kernel_ ? piece.ends.size() : !piece.ends.empty();
}

void Executor::tell_step(std::int64_t step) {
  if (timed_.empty()) return;
  for (const auto& [queue, bound] : fed_) tell_call(*queue, *bound, step);
}

void Executor::tell_call(QueueRun& queue, const BoundCall& bound, std::int64_t step) {
  const BoundSide& side = bound.side(step);
  const Call& call = *bound.call;
  const std::int32_t q = queue.index;
  const double clock = clocks_.at(&queue.device);
  auto stamp = side.stamps.begin();
  double& at = queue.told;
  const auto next = [&] {
    if (stamp == side.stamps.end()) return;  // it is done with the call that follows
    raise(queue.device.read(*stamp++, &at));
    at += clock;
  };
  const auto each = [&](auto&& tell_one) {
    for (Probe* probe : timed_) tell_one(*probe);
  };
  next();
  for (const BoundWait& waits : bound.waits) {
    const double before = at;
    next();
    if (step < waits.wait->steps_ago) continue;
    each([&](Probe& probe) { probe.begin_wait(q, call, *waits.wait, step, before); });
    each([&](Probe& probe) { probe.end_wait(q, call, *waits.wait, step, at); });
  }
  each([&](Probe& probe) { probe.begin_call(q, call, step, at); });
  for (std::size_t i = 0; i < side.works->size(); ++i) {
    next();
    if (one_by_one(step)) each([&](Probe& probe) { probe.end_kernel(q, call, i, at); });
  }
  for (std::size_t i = 0; i < parts_of(*side.piece); ++i) {
    each([&](Probe& probe) { probe.waits(q, true, at); });
    next();
    each([&](Probe& probe) { probe.waits(q, false, at); });
  }
  each([&](Probe& probe) { probe.end_call(q, call, step, at); });
}

// ---------------------------------------------------------------- exposed communication

bool Executor::is_measured(std::int64_t step) const {
  return options_.measure_every > 0 && (step + 1) % options_.measure_every == 0;
}

std::optional<double> Executor::exposed_communication(std::int64_t step) {
  const auto communicates = [](const QueueInfo& queue) { return queue.communicates(); };
  if (!is_measured(step) || std::none_of(plan_.queues.begin(), plan_.queues.end(), communicates)) return {};
  double seconds = 0;
  for (auto& queue : queues_) {
    seconds += std::exchange(queue->exposed[step % 2], 0);
    for (const BoundCall& bound : queue->calls) {
      double sign = 1;
      for (Stamp stamp : bound.side(step).edges) {
        double at = 0;
        raise(queue->device.read(stamp, &at));
        seconds += (sign = -sign) * at;
      }
    }
  }
  return seconds;
}

// ---------------------------------------------------------------- while the step runs

void Executor::tell_progress() {
  if (live_.empty() || has_failed()) return;
  for (auto& queue : queues_)
    if (queue->asynchronous && !queue->calls.empty())
      while (tell_progress(*queue)) {
      }
}

bool Executor::has_failed() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->has_failed(); });
}

// Whether there was something to tell.
bool Executor::tell_progress(QueueRun& queue) {
  const auto calls = static_cast<std::int64_t>(queue.calls.size());
  const std::int64_t step = queue.ended / calls;
  const BoundCall& bound = queue.calls[static_cast<std::size_t>(queue.ended % calls)];
  const Call& call = *bound.call;
  if (step >= steps_) return false;
  const double at = probe_clock();
  if (!queue.begun) {
    if (!may_begin(bound, step)) return false;
    for (Probe* probe : live_) {
      probe->begin_call(queue.index, call, step, at);
      if (queue.comm.comm) probe->waits(queue.index, true, at);
    }
    return queue.begun = true;
  }
  if (!queue.ticket.reached(ticket(queue.index, step, call.position))) return false;
  for (Probe* probe : live_) {
    if (queue.comm.comm) probe->waits(queue.index, false, at);
    probe->end_call(queue.index, call, step, at);
  }
  ++queue.ended;
  queue.begun = false;
  return true;
}

bool Executor::may_begin(const BoundCall& bound, std::int64_t step) const {
  for (const BoundWait& waits : bound.waits) {
    const Wait& wait = *waits.wait;
    if (step >= wait.steps_ago &&
        !waits.other->ticket.reached(ticket(wait.queue, step - wait.steps_ago, wait.call)))
      return false;
  }
  return true;
}

}  // namespace prun
