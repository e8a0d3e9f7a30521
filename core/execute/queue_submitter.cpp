#include "execute/queue_submitter.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/thread.hpp"
#include "execute/device_memory.hpp"
#include "plan/proof/events.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- queue submitter

// The watcher checks this often, and opens a gate that it has seen closed twice: this is many times what
// feeding a call takes.
constexpr std::chrono::milliseconds between{50};

// Opens a gate unless it has been opened meanwhile.
void open_once(Counter& opened, std::uint64_t times) {
  std::uint64_t before = times - 1;
  opened.compare_exchange_strong(before, times);
}

}  // namespace

Gates::Gates(DeviceInterface& device, std::size_t queues) : opened_(device, queues), closed_(queues) {
  watcher_ =
      start_thread<std::jthread>("the gates of queues", [this](const std::stop_token& stop) { watch(stop); });
}

Gates::Closed Gates::close(std::size_t queue) { return {&opened_[queue], ++closed_[queue]}; }

void Gates::open(std::size_t queue) { open_once(opened_[queue], closed_[queue]); }

void Gates::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any sleeping;
  std::vector<std::uint64_t> seen(closed_.size());
  std::unique_lock lock(mutex);
  while (!sleeping.wait_for(lock, stop, between, [] { return false; }) && !stop.stop_requested())
    for (std::size_t q = 0; q < seen.size(); ++q) {
      const std::uint64_t closed = closed_[q];
      if (closed == seen[q] && closed > 0) open_once(opened_[q], closed);
      seen[q] = closed;
    }
}

void QueueSubmitter::start() {
  if (!queues_.submitted().empty()) thread_ = start_thread("the device's queues", [this] { run(); });
}

void QueueSubmitter::join() {
  if (thread_.joinable()) thread_.join();
}

void QueueSubmitter::run() {
  ::prctl(PR_SET_NAME, "prun-submitter");
  for (auto& queue : queues_.all())
    if (const Status status = queue->asynchronous ? queue->device.attach(queue->handle) : Status{};
        !status.ok())
      queues_.fail(*queue, status, 0);
  for (std::int64_t iteration = 0; steps_.may_run(iteration); ++iteration)
    for (const auto& [queue, bound] : queues_.submitted()) submit_call(*queue, *bound, iteration);
}

// Says whether works can wait in the queue until all of a call are there: then the times that the device
// notes are its own, and contain nothing of the host's for the next launch. All works, stamps and waits must
// find room beside the gate.
bool QueueSubmitter::may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side) {
  const auto entries = static_cast<std::int64_t>(2 * (side.works->size() + bound.waits.size()) + 4);
  return !side.works->empty() && (queue.depth == 0 || entries <= queue.depth / 2);
}

SubmittedCall QueueSubmitter::submitted_of(const QueueRun& queue, const BoundCall& bound,
                                           std::int64_t iteration) const {
  const std::int64_t step = steps_.run(iteration).step;
  const BoundSide& side = bound.side(step);
  return {.works = side.works->size(),
          .exchanges = side.piece->ends.size(),
          .one_by_one = watchers_.parts_of(*side.piece) > 1,
          .stamps = !side.stamps.empty(),
          .edges = watchers_.notes_waits(queue.info, step) && steps_.run(iteration).begins_step(),
          .event = side.event != nullptr,
          .counter = bound.signals};
}

// Leaves out all of a failed queue's call: its device does nothing any more. The first error ends the call.
void QueueSubmitter::submit_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration) {
  if (queue.has_failed()) return;
  const bool runs = bound.call->runs_in(steps_.run(iteration).iteration);
  if (saves_ && bound.call->save_read >= 0) saves_->await(bound.call->save_read);
  const BoundSide& side = bound.side(steps_.run(iteration).step);
  const bool held = runs && watchers_.one_by_one(steps_.run(iteration).step) && may_hold(queue, bound, side);
  Status status;
  if (held) {
    const auto gate = gates_->close(static_cast<std::size_t>(queue.index));
    status = queue.device.wait_counter(queue.handle, gate.counter, gate.opens_at);
  }
  auto stamp = side.stamps.begin(), edge = side.edges.begin();
  const SubmittedCall submitted = submitted_of(queue, bound, iteration);
  submission_script(queues_.plan(), *bound.call, iteration, submitted, script_);
  for (const SubmittedPiece& piece : script_) {
    if (!status.ok()) break;
    switch (piece.kind) {
      case SubmittedPiece::Kind::stamp: status = queue.device.stamp(queue.handle, *stamp++); break;
      case SubmittedPiece::Kind::edge: status = queue.device.stamp(queue.handle, *edge++); break;
      case SubmittedPiece::Kind::wait:
        status = submit_wait(queue, bound.waits[piece.number], iteration);
        break;
      case SubmittedPiece::Kind::work:
        if (runs) status = queue.device.run(queue.handle, (*side.works)[piece.number]);
        break;
      case SubmittedPiece::Kind::exchanges:
        if (runs && submitted.one_by_one) status = start(queue, side.piece->exchange(piece.number - 1));
        if (runs && !submitted.one_by_one) status = start(queue, side.piece->exchanges);
        break;
      case SubmittedPiece::Kind::event: status = queue.device.record(queue.handle, side.event); break;
      case SubmittedPiece::Kind::counter:
        status = queue.device.write_counter(queue.handle, &queue.ticket.counter(),
                                            queue.ticket_of(iteration, bound.call->position));
        break;
    }
  }
  if (held) gates_->open(static_cast<std::size_t>(queue.index));
  if (!status.ok()) queues_.fail(queue, status, iteration);
}

Status QueueSubmitter::start(QueueRun& queue, std::span<const CommOp> exchanges) {
  return queue.comm.comm->start(queue.comm.communicator, exchanges.data(),
                                static_cast<std::int64_t>(exchanges.size()), queue.stream);
}

Status QueueSubmitter::submit_wait(QueueRun& queue, const BoundWait& waits, std::int64_t iteration) const {
  const std::int64_t of = iteration - waits.wait->steps_ago;
  if (waits.event_of) return queue.device.wait(queue.handle, waits.event_of->side(steps_.run(of).step).event);
  return queue.device.wait_counter(queue.handle, &waits.other->ticket.counter(),
                                   waits.other->ticket_of(of, waits.wait->call));
}

// ------------------------------------------------------------------- queue works

void QueueWorks::bind_waits(const RankQueues& queues) {
  for (auto& queue : queues.all())
    for (BoundCall& bound : queue->calls) {
      if (const std::optional<Wait>& unless = bound.call->unless) {
        QueueRun& other = queues[unless->queue];
        other.calls[unless->call].signals = true;
        bound.known = &other;
      }
      for (const Wait& wait : bound.call->waits) {
        QueueRun& other = queues[wait.queue];
        BoundCall& awaited = other.calls[wait.call];
        const bool by_event = queue->asynchronous && other.asynchronous && &queue->device == &other.device;
        bound.waits.push_back({&wait, &other, by_event ? &awaited : nullptr});
        awaited.signals |= !by_event;
        for (BoundSide& side : awaited.sides)
          if (by_event && !side.event) side.event = events_.emplace_back(queue->device).handle();
      }
    }
}

void QueueWorks::bind_works(const RankQueues& queues) {
  for (auto& queue : queues.all())
    for (int side = 0; side < queues.plan().staging_copies; ++side) bind_works(*queue, side);
}

// Says whether a device may take the two calls, of which the second follows the first, as one: no other queue
// waits between them, and no probe watches there.
bool QueueWorks::are_one(const QueueRun& queue, const BoundCall& first, const BoundCall& second,
                         int side) const {
  const bool awaited =
      first.signals || std::any_of(first.sides.begin(), first.sides.end(),
                                   [](const BoundSide& one) { return one.event != nullptr; });
  const bool watched = watchers_.each_kernel() ? watchers_.one_by_one(side) : !watchers_.timed().empty();
  const bool alike = first.call->behind == second.call->behind && first.call->from == second.call->from &&
                     first.call->to == second.call->to;
  return queue.asynchronous && !queue.comm.comm && !watched && !apart_ && !awaited && alike &&
         second.waits.empty();
}

// Binds works: calls that are one share a work, which is kept with the last of them.
void QueueWorks::bind_works(QueueRun& queue, int side) {
  static const std::vector<BoundWork> none_here;
  for (auto first = queue.calls.begin(); first != queue.calls.end();) {
    auto last = first;
    bool held = last->call->save_read >= 0;
    while (last + 1 != queue.calls.end() && are_one(queue, *last, *(last + 1), side)) {
      // A call that a save delays is not given together with one that it does not.
      const bool holds = (last + 1)->call->save_read >= 0;
      if (holds && !held) break;
      held |= holds;
      ++last;
    }
    std::vector<const BoundPiece*> pieces;
    for (auto call = first; call <= last; ++call) {
      BoundSide& of = call->side(side);
      pieces.push_back(of.piece);
      of.works = &none_here;
      of.is_done_later = call != last;
    }
    last->side(side).works = &works_of(queue, pieces, watchers_.one_by_one(side));
    last->signals |= last + 1 == queue.calls.end() || last->call->position == queue.last_behind ||
                     (queue.asynchronous && !watchers_.live().empty());
    first = last + 1;
  }
}

// Returns the works of calls: those that share pieces share them.
const std::vector<BoundWork>& QueueWorks::works_of(QueueRun& queue,
                                                   const std::vector<const BoundPiece*>& pieces,
                                                   bool one_by_one) {
  const auto [entry, fresh] = queue.works.try_emplace({pieces, one_by_one});
  if (!fresh) return entry->second;
  std::vector<Launch>& launches = launches_.emplace_back();
  std::size_t count = 0;
  for (const BoundPiece* piece : pieces) count += piece->launches.size();
  launches.reserve(count);
  for (const BoundPiece* piece : pieces)
    launches.insert(launches.end(), piece->launches.begin(), piece->launches.end());
  const std::size_t all = launches.size(), together = one_by_one || apart_ ? 1 : all;
  for (std::size_t i = 0; i < all; i += together)
    raise(queue.device.bind(queue.handle, &launches[i], static_cast<std::int64_t>(together),
                            &entry->second.emplace_back()));
  return entry->second;
}

// Binds stamps before a call's waits, after each of them, and after each of its works or exchanges.
void QueueWorks::bind_stamps(const RankQueues& queues) {
  for (auto& queue : queues.all()) stamp_edges(queues.plan(), *queue);
  if (watchers_.timed().empty()) return;
  for (const auto& [queue, bound] : queues.submitted())
    for (BoundSide& side : queue->calls[bound->call->position].sides) {
      if (side.is_done_later && bound->waits.empty()) continue;
      const std::size_t stamps =
          1 + bound->waits.size() + side.works->size() + watchers_.parts_of(*side.piece);
      for (std::size_t i = 0; i < stamps; ++i)
        side.stamps.push_back(stamps_.emplace_back(queue->device).handle());
    }
}

void QueueWorks::stamp_edges(const Plan& plan, QueueRun& queue) {
  std::size_t all = 0;
  for (BoundCall& bound : queue.calls) {
    for (std::size_t i = 0; watchers_.measures() && i <= bound.waits.size(); ++i) {
      all += counted_wait(plan, *bound.call, i) >= 0;
      if (!queue.asynchronous || !is_edge(plan, *bound.call, i)) continue;
      for (BoundSide& side : bound.sides) side.edges.push_back(stamps_.emplace_back(queue.device).handle());
    }
  }
  if (!queue.asynchronous)
    for (std::vector<HeldUp>& side : queue.held_up) side.reserve(all);
}

namespace {

// ------------------------------------------------------------------- late probes

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

bool may_begin(const BoundCall& bound, std::int64_t iteration) {
  for (const BoundWait& waits : bound.waits) {
    const Wait& wait = *waits.wait;
    if (iteration >= wait.steps_ago &&
        !waits.other->ticket.reached(waits.other->ticket_of(iteration - wait.steps_ago, wait.call)))
      return false;
  }
  return true;
}

}  // namespace

void LateProbes::set_clocks() {
  if (watchers_.timed().empty()) return;
  for (const auto& [queue, bound] : queues_.submitted())
    if (clocks_.count(&queue->device) == 0) clocks_[&queue->device] = clock_of(*queue);
}

void LateProbes::report_step(std::int64_t iteration) const {
  if (watchers_.timed().empty()) return;
  for (const auto& [queue, bound] : queues_.submitted())
    if (bound->call->runs_in(steps_.run(iteration).iteration)) report_call(*queue, *bound, iteration);
}

void LateProbes::report_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration) const {
  const std::int64_t step = steps_.run(iteration).step;
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
    if (iteration < waits.wait->steps_ago) continue;
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
  const std::int64_t iteration = queue.ended / calls;
  const BoundCall& bound = queue.calls[queue.ended % calls];
  const Call& call = *bound.call;
  if (iteration >= steps_.started()) return false;
  const std::int64_t step = steps_.run(iteration).step;
  const double at = probe_clock();
  if (!queue.begun) {
    if (!may_begin(bound, iteration)) return false;
    for (Probe* probe : watchers_.live()) {
      probe->begin_call(queue.index, call, step, at);
      if (queue.comm.comm) probe->waits(queue.index, true, at);
    }
    return queue.begun = true;
  }
  if (!queue.ticket.reached(queue.ticket_of(iteration, call.position))) return false;
  for (Probe* probe : watchers_.live()) {
    if (queue.comm.comm) probe->waits(queue.index, false, at);
    probe->end_call(queue.index, call, step, at);
  }
  ++queue.ended;
  queue.begun = false;
  return true;
}

}  // namespace prun
