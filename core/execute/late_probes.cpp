#include "execute/late_probes.hpp"

#include <limits>
#include <utility>

#include "execute/owned_handle.hpp"

namespace prun {
namespace {

// Returns the clock of the queue's device relative to the probes': the closest of some tries.
double clock_of(QueueRun& queue) {
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

bool may_begin(const BoundCall& bound, std::int64_t round) {
  for (const BoundWait& waits : bound.waits) {
    const Wait& wait = *waits.wait;
    if (round >= wait.steps_ago &&
        !waits.other->ticket.reached(waits.other->ticket_of(round - wait.steps_ago, wait.call)))
      return false;
  }
  return true;
}

}  // namespace

void LateProbes::set_clocks() {
  if (watchers_.timed().empty()) return;
  for (const auto& [queue, bound] : queues_.fed())
    if (clocks_.count(&queue->device) == 0) clocks_[&queue->device] = clock_of(*queue);
}

void LateProbes::report_step(std::int64_t round) const {
  if (watchers_.timed().empty()) return;
  for (const auto& [queue, bound] : queues_.fed())
    if (bound->call->runs_in(steps_.run(round).round)) report_call(*queue, *bound, round);
}

void LateProbes::report_call(QueueRun& queue, const BoundCall& bound, std::int64_t round) const {
  const std::int64_t step = steps_.run(round).step;
  const BoundSide& side = bound.side(step);
  const Call& call = *bound.call;
  const std::int32_t q = queue.index;
  const double clock = clocks_.at(&queue.device);
  auto stamp = side.stamps.begin();
  double& at = queue.told;
  const auto next = [&] {
    if (stamp == side.stamps.end()) return;  // the queue is done with the call that follows
    raise(queue.device.read(*stamp++, &at));
    at += clock;
  };
  const auto each = [&](auto&& tell_one) {
    for (Probe* probe : watchers_.timed()) tell_one(*probe);
  };
  next();
  for (const BoundWait& waits : bound.waits) {
    const double before = at;
    next();
    if (round < waits.wait->steps_ago) continue;
    each([&](Probe& probe) { probe.begin_wait(q, call, *waits.wait, step, before); });
    each([&](Probe& probe) { probe.end_wait(q, call, *waits.wait, step, at); });
  }
  each([&](Probe& probe) { probe.begin_call(q, call, step, at); });
  for (std::size_t i = 0; i < side.works->size(); ++i) {
    next();
    if (watchers_.one_by_one(step)) each([&](Probe& probe) { probe.end_kernel(q, call, i, at); });
  }
  for (std::size_t i = 0; i < watchers_.parts_of(*side.piece); ++i) {
    each([&](Probe& probe) { probe.waits(q, true, at); });
    next();
    each([&](Probe& probe) { probe.waits(q, false, at); });
  }
  each([&](Probe& probe) { probe.end_call(q, call, step, at); });
}

void LateProbes::report_progress() {
  if (watchers_.live().empty() || queues_.have_failed()) return;
  for (auto& queue : queues_.all())
    if (queue->asynchronous && !queue->calls.empty())
      while (report_progress(*queue)) {
      }
}

// Reports progress; says whether there was any.
bool LateProbes::report_progress(QueueRun& queue) const {
  const auto calls = static_cast<std::int64_t>(queue.calls.size());
  const std::int64_t round = queue.ended / calls;
  const BoundCall& bound = queue.calls[queue.ended % calls];
  const Call& call = *bound.call;
  if (round >= steps_.started()) return false;
  const std::int64_t step = steps_.run(round).step;
  const double at = probe_clock();
  if (!queue.begun) {
    if (!may_begin(bound, round)) return false;
    for (Probe* probe : watchers_.live()) {
      probe->begin_call(queue.index, call, step, at);
      if (queue.comm.comm) probe->waits(queue.index, true, at);
    }
    return queue.begun = true;
  }
  if (!queue.ticket.reached(queue.ticket_of(round, call.position))) return false;
  for (Probe* probe : watchers_.live()) {
    if (queue.comm.comm) probe->waits(queue.index, false, at);
    probe->end_call(queue.index, call, step, at);
  }
  ++queue.ended;
  queue.begun = false;
  return true;
}

}  // namespace prun
