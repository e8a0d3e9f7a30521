#include "execute/executor.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <new>

#include "base/thread.hpp"
#include "plugin/in_plugin.hpp"
#include "simulate/events.hpp"

namespace prun {
namespace {

DeviceInfo info_of(DeviceInterface& device) {
  DeviceInfo info;
  raise(device.info(&info));
  return info;
}

// The host's wait for a device that runs its work later, as if it were a call: one that gets no further is
// found as a plugin is that does not come back.
class WaitForDevice {
 public:
  explicit WaitForDevice(const std::string& device) : device_(device) {}

  void is_at(std::uint64_t progress) {
    if (here_ && progress == seen_) return;
    seen_ = progress;
    here_.emplace(device_.c_str(), "while its queues work");
  }

 private:
  const std::string& device_;
  std::uint64_t seen_ = 0;
  std::optional<InPlugin> here_;
};

}  // namespace

Executor::QueueRun::QueueRun(DeviceInterface& its_device, const QueueInfo& info, Counter& counter,
                             bool is_asynchronous)
    : device(its_device),
      asynchronous(is_asynchronous),
      device_text(detail::concat("device '", info_of(its_device).name.view(), "'")),
      depth(info_of(its_device).queue_depth),
      ticket(counter, is_asynchronous) {
  raise(device.create_queue(info.name, info.workers, &handle));
}

Executor::QueueRun::~QueueRun() { device.destroy_queue(handle); }

Executor::Executor(const Program& program, const Plan& plan, const Devices& devices, ExecutorOptions options,
                   std::vector<QueueComm> comms, std::vector<Probe*> probes)
    : plan_(plan),
      devices_(devices),
      options_(options),
      probes_(std::move(probes)),
      memory_(make_memory(program, plan, devices, options)),
      binding_(program, plan, memory_, options.rank, options.poison),
      counters_(keeper_of_counters(), plan.queues.size()) {
  for (DeviceInterface* device : devices_)
    if (const DeviceInfo info = info_of(*device); options_.poison && !info.host_memory && !info.tier)
      throw_error(ErrorCode::unsupported,
                  "run.poison writes into memory that the host cannot write on device '",
                  info_of(*device).name.view(), "'; leave it out there");
  if (options_.poison) poison_.emplace(program, plan, memory_);
  sort_probes();
  if (each_kernel_) gates_.emplace(keeper_of_counters(), plan.queues.size());
  comms.resize(plan_.queues.size());
  tell_devices(comms);
  make_queues(comms);
  bind_calls();
  bind_waits();
  for (auto& queue : queues_)
    for (int side : {0, 1}) bind_works(*queue, side);
  attach_memory();
  if (!fed_.empty()) memory_.clear();  // trying work has spoilt it
  bind_stamps();
  start_threads();
}

PlanMemory Executor::make_memory(const Program& program, const Plan& plan, const Devices& devices,
                                 const ExecutorOptions& options) {
  if (options.beneath) return PlanMemory(program, plan, *options.beneath);
  return PlanMemory(program, plan, devices, options.poison);
}

void Executor::sort_probes() {
  for (Probe* probe : probes_) {
    each_kernel_ |= probe->each_kernel();
    (probe->live() ? live_ : timed_).push_back(probe);
  }
}

// Asynchronous queues write and await them; the others reach any memory of the host.
DeviceInterface& Executor::keeper_of_counters() const {
  DeviceInterface* keeper = nullptr;
  for (DeviceInterface* device : devices_) {
    const DeviceInfo info = info_of(*device);
    if (!info.asynchronous) continue;
    if (!keeper) keeper = device;
    if (const DeviceInfo first = info_of(*keeper); first.kind.view() != info.kind.view())
      throw_error(
          ErrorCode::unsupported, "devices '", first.name.view(), "' and '", info.name.view(),
          "' of one rank are both asynchronous and of different kinds, so neither reaches the other's "
          "pinned memory; leave one of them out");
  }
  return keeper ? *keeper : *devices_.front();
}

// Of the queues of a plan, those that exchange wait for other ranks, and any may wait for another device's.
void Executor::tell_devices(const std::vector<QueueComm>& comms) {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    bool others = false, staged = false;
    for (std::size_t q = 0; q < plan_.queues.size(); ++q) {
      const bool own = static_cast<std::size_t>(plan_.queues[q].device) == d;
      others |= !own || plan_.queues[q].axis != no_axis;
      staged |= own && comms[q].comm && comms[q].staged;
    }
    if (others) raise(devices_[d]->waits_for_others(staged));
  }
}

void Executor::make_queues(const std::vector<QueueComm>& comms) {
  for (std::size_t q = 0; q < plan_.queues.size(); ++q) {
    const QueueInfo& queue = plan_.queues[q];
    DeviceInterface& device = *devices_.at(static_cast<std::size_t>(queue.device));
    const bool asynchronous = info_of(device).asynchronous;
    PRUN_CHECK((queue.axis != no_axis) == (comms[q].comm != nullptr), "queue ", queue.name);
    PRUN_CHECK(!comms[q].enqueues || asynchronous, "queue ", queue.name);
    queues_.push_back(std::make_unique<QueueRun>(device, queue, counters_[q],
                                                 asynchronous && (!comms[q].comm || comms[q].enqueues)));
    queues_.back()->index = static_cast<std::int32_t>(q);
    queues_.back()->comm = comms[q];
    if (asynchronous) raise(device.stream(queues_.back()->handle, &queues_.back()->stream));
  }
}

Executor::~Executor() { stop(); }

// What the queues have been given they finish.
void Executor::stop() {
  started_.store(~steps_);
  started_.notify_all();
  for (auto& queue : queues_)
    if (queue->thread.joinable()) queue->thread.join();
  if (feeder_.joinable()) feeder_.join();
  for (auto& queue : queues_)
    if (queue->asynchronous && steps_ > 0) await_step(*queue, steps_ - 1);
}

// ---------------------------------------------------------------- binding

void Executor::bind_calls() {
  for (const Call& call : plan_.calls) {
    QueueRun& queue = *queues_[static_cast<std::size_t>(call.queue)];
    BoundCall& bound = queue.calls.emplace_back();
    bound.call = &call;
    for (int side : {0, 1}) bound.sides[side].piece = &binding_.bind(call, side);
  }
  for (const Call& call : plan_.calls) {
    QueueRun& queue = *queues_[static_cast<std::size_t>(call.queue)];
    if (queue.asynchronous) fed_.emplace_back(&queue, &queue.calls[static_cast<std::size_t>(call.position)]);
  }
}

// Whether a device may take the two calls, of which the second follows the first, as one: nobody waits
// between them, and nobody asks what happens there.
bool Executor::are_one(const QueueRun& queue, const BoundCall& first, const BoundCall& second,
                       int side) const {
  const bool awaited = first.signals || first.sides[0].event || first.sides[1].event;
  const bool watched = each_kernel_ ? one_by_one(side) : !timed_.empty();
  return queue.asynchronous && !queue.comm.comm && !watched && !poison_ && !awaited && second.waits.empty();
}

// The work of calls that are one is that of the last of them.
void Executor::bind_works(QueueRun& queue, int side) {
  static const std::vector<BoundWork> none_here;
  for (auto first = queue.calls.begin(); first != queue.calls.end();) {
    auto last = first;
    while (last + 1 != queue.calls.end() && are_one(queue, *last, *(last + 1), side)) ++last;
    std::vector<const BoundPiece*> pieces;
    for (auto call = first; call <= last; ++call) {
      pieces.push_back(call->sides[side].piece);
      call->sides[side].works = &none_here;
      call->sides[side].is_done_later = call != last;
    }
    last->sides[side].works = &bind_works(queue, pieces, one_by_one(side));
    last->signals |= last + 1 == queue.calls.end() || (queue.asynchronous && !live_.empty());
    first = last + 1;
  }
}

// Calls that share pieces share their works.
const std::vector<BoundWork>& Executor::bind_works(QueueRun& queue,
                                                   const std::vector<const BoundPiece*>& pieces,
                                                   bool one_by_one) {
  const auto [entry, fresh] = queue.works.try_emplace({pieces, one_by_one});
  if (!fresh) return entry->second;
  std::vector<Launch>& launches = launches_.emplace_back();
  for (const BoundPiece* piece : pieces)
    launches.insert(launches.end(), piece->launches.begin(), piece->launches.end());
  const std::size_t all = launches.size(), together = one_by_one || poison_ ? 1 : all;
  for (std::size_t i = 0; i < all; i += together)
    raise(queue.device.bind(queue.handle, &launches[i], static_cast<std::int64_t>(together),
                            &entry->second.emplace_back()));
  return entry->second;
}

void Executor::bind_waits() {
  for (auto& queue : queues_)
    for (BoundCall& bound : queue->calls)
      for (const Wait& wait : bound.call->waits) {
        QueueRun& other = *queues_[static_cast<std::size_t>(wait.queue)];
        BoundCall& awaited = other.calls[static_cast<std::size_t>(wait.call)];
        const bool by_event = queue->asynchronous && other.asynchronous && &queue->device == &other.device;
        bound.waits.push_back({&wait, &other, by_event ? &awaited : nullptr});
        awaited.signals |= !by_event;
        for (BoundSide& side : awaited.sides)
          if (by_event && !side.event) side.event = events_.emplace_back(queue->device).handle();
      }
}

// Before its waits, after each of them, and after each of its works or exchanges.
void Executor::bind_stamps() {
  for (auto& queue : queues_)
    for (BoundCall& bound : queue->calls) {
      bound.edges = edges_of_exposure(plan_, *bound.call);
      if (!queue->asynchronous || options_.measure_every == 0) continue;
      for (BoundSide& side : bound.sides)
        for (auto left = std::count(bound.edges.begin(), bound.edges.end(), true); left > 0; --left)
          side.edges.push_back(stamps_.emplace_back(queue->device).handle());
    }
  if (timed_.empty() || fed_.empty()) return;
  for (const auto& [queue, bound] : fed_)
    for (BoundSide& side : queue->calls[static_cast<std::size_t>(bound->call->position)].sides) {
      if (side.is_done_later && bound->waits.empty()) continue;
      const std::size_t stamps = 1 + bound->waits.size() + side.works->size() + parts_of(*side.piece);
      for (std::size_t i = 0; i < stamps; ++i)
        side.stamps.push_back(stamps_.emplace_back(queue->device).handle());
    }
  set_clocks();
}

// Like all that may hold up the device, before the first step.
void Executor::attach_memory() {
  for (const std::size_t q : by_name(plan_.queues)) {
    QueueRun& queue = *queues_[q];
    if (!queue.comm.comm) continue;
    std::vector<CommOp> ops;
    for (const BoundCall& bound : queue.calls)
      for (const BoundSide& side : bound.sides)
        ops.insert(ops.end(), side.piece->exchanges.begin(), side.piece->exchanges.end());
    if (queue.comm.staged)
      attach_staging(queue, ops);
    else if (options_.beneath)
      AttachedMemory::connect(queue.comm, ops, queue.stream);
    else
      attached_.attach(queue.comm, memory_.of_device(), ops, queue.stream);
    if (queue.asynchronous) prepare_exchanges(queue);
  }
}

void Executor::prepare_exchanges(QueueRun& queue) {
  for (const BoundCall& bound : queue.calls)
    for (const BoundSide& side : bound.sides)
      for_exchanges(*side.piece, [&](std::span<const CommOp> ops) {
        raise(queue.comm.comm->prepare(queue.comm.communicator, ops.data(),
                                       static_cast<std::int64_t>(ops.size()), queue.stream));
      });
}

void Executor::attach_staging(QueueRun& queue, const std::vector<CommOp>& ops) {
  const std::string& name = plan_.queues[static_cast<std::size_t>(queue.index)].name;
  queue.staging = &stagings_.emplace_back(queue.device, name, ops, queue.comm.members);
  attached_.attach(queue.comm, queue.staging->memory(), queue.staging->operations(ops), nullptr);
}

// All of them or none: threads that run must not outlive what they use.
void Executor::start_threads() {
  try {
    for (auto& queue : queues_) {
      const QueueInfo& info = plan_.queues[static_cast<std::size_t>(queue->index)];
      if (!queue->asynchronous)
        queue->thread =
            start_thread("queue '" + info.name + "'", [this, &queue = *queue] { run_queue(queue); });
    }
    if (!fed_.empty()) feeder_ = start_thread("the device's queues", [this] { feed_queues(); });
  } catch (const Error&) {
    stop();
    throw;
  }
}

// ---------------------------------------------------------------- steps

void Executor::start_step() {
  PRUN_CHECK(steps_ - finished_ < 2, "step ", steps_, " would write where step ", finished_, " reads");
  started_.store(++steps_);
  started_.notify_all();
}

// What goes wrong in the step behind it is not its own.
std::optional<double> Executor::finish_step() {
  const std::int64_t step = finished_++;
  bool done = true;
  for (auto& queue : queues_) {
    await_step(*queue, step);
    done &= is_done(*queue, step);
  }
  for (auto& queue : queues_)
    if (done ? queue->failed_by(step) : queue->has_failed()) raise(queue->status);
  tell_progress();
  tell_step(step);
  return exposed_communication(step);
}

// Also where nobody waits for its tickets any more.
bool Executor::is_done(const QueueRun& queue, std::int64_t step) const {
  return queue.calls.empty() ||
         queue.ticket.counter().load() >= ticket(queue.index, step, queue.calls.back().call->position);
}

// By all queues together: it grows for as long as any of them gets on.
std::uint64_t Executor::tickets_written() const {
  std::uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue->ticket.counter().load();
  return sum;
}

void Executor::await_step(QueueRun& queue, std::int64_t step) {
  if (queue.calls.empty()) return;
  const std::uint64_t last = ticket(queue.index, step, queue.calls.back().call->position);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::optional<WaitForDevice> wait;
  // A device that fails may write no ticket any more: it must be asked. The next step has been started, so
  // nothing is lost where this one's end is seen a little later; looking takes a core's time.
  while (queue.asynchronous && !queue.ticket.reached(last)) {
    Status status = queue.device.check(queue.handle);
    if (status.ok() && queue.comm.comm) status = queue.comm.comm->check(queue.comm.communicator);
    if (!status.ok()) fail(queue, status, step);
    tell_progress();
    if (!wait) wait.emplace(queue.device_text);
    wait->is_at(tickets_written());
    std::this_thread::sleep_for(std::clamp<Clock::duration>(
        (Clock::now() - begin) / 64, std::chrono::microseconds(20), std::chrono::milliseconds(1)));
  }
  queue.ticket.await(last);
}

// Whoever waits for what an asynchronous queue has not done goes on: nothing of this step counts. When a
// device says that it has failed, its queue may be in an earlier step than its feeder, or in a later one than
// the host.
void Executor::fail(QueueRun& queue, const Status& status, std::int64_t step) {
  const std::scoped_lock lock(failing_);
  if (queue.has_failed()) return;
  queue.status = status;
  const auto calls = static_cast<std::uint64_t>(queue.calls.size());
  if (queue.asynchronous && calls > 0)
    step = static_cast<std::int64_t>(queue.ticket.counter().load() / calls);
  queue.failed_in.store(step);
  if (!queue.asynchronous) return;
  for (auto& other : queues_)
    if (other->asynchronous) other->ticket.give_up();
}

std::uint64_t Executor::ticket(std::int32_t queue, std::int64_t step, std::int32_t position) const {
  return static_cast<std::uint64_t>(step * plan_.queues[static_cast<std::size_t>(queue)].calls + position +
                                    1);
}

bool Executor::may_run(std::int64_t step) {
  std::int64_t started = started_.load();
  while (started >= 0 && started <= step) {
    started_.wait(started);
    started = started_.load();
  }
  return step < std::max(started, ~started);
}

// ---------------------------------------------------------------- blocking queues

void Executor::run_queue(QueueRun& queue) {
  if (const Status status = queue.device.attach(queue.handle); !status.ok()) fail(queue, status, 0);
  for (std::int64_t step = 0; may_run(step); ++step)
    for (const BoundCall& bound : queue.calls) run_call(queue, bound, step);
}

// A queue that has failed goes on handing out tickets, so that nobody waits for ever.
void Executor::run_call(QueueRun& queue, const BoundCall& bound, std::int64_t step) {
  const Call& call = *bound.call;
  await(queue, bound, step);
  tell([&](Probe& probe, double at) { probe.begin_call(queue.index, call, step, at); });
  if (!queue.failed_by(step)) {
    const BoundSide& side = bound.side(step);
    const Status status = queue.comm.comm ? exchange(queue, *side.piece) : launch(queue, call, side, step);
    if (!status.ok()) fail(queue, status, step);
  }
  tell([&](Probe& probe, double at) { probe.end_call(queue.index, call, step, at); });
  if (bound.signals) queue.ticket.publish(ticket(queue.index, step, call.position));
}

void Executor::await(QueueRun& queue, const BoundCall& bound, std::int64_t step) {
  const bool measured = is_measured(step);
  double sign = 1;
  auto edge = bound.edges.begin();
  const auto pass_edge = [&] {
    if (*edge++ && measured) queue.exposed[step % 2] += (sign = -sign) * probe_clock();
  };
  for (const BoundWait& waits : bound.waits) {
    pass_edge();
    const Wait& wait = *waits.wait;
    if (step < wait.steps_ago) continue;
    tell([&](Probe& probe, double at) { probe.begin_wait(queue.index, *bound.call, wait, step, at); });
    waits.other->ticket.await(ticket(wait.queue, step - wait.steps_ago, wait.call));
    tell([&](Probe& probe, double at) { probe.end_wait(queue.index, *bound.call, wait, step, at); });
  }
  pass_edge();
}

Status Executor::launch(QueueRun& queue, const Call& call, const BoundSide& side, std::int64_t step) {
  for (std::size_t i = 0; i < side.works->size(); ++i) {
    if (poison_) poison_->before(*side.piece, i);
    Status status = queue.device.run(queue.handle, (*side.works)[i]);
    if (status.ok() && poison_) status = poison_->after(call, *side.piece, i);
    if (!status.ok()) return status;
    if (one_by_one(step)) tell([&](Probe& probe, double at) { probe.end_kernel(queue.index, call, i, at); });
  }
  return {};
}

Status Executor::exchange(QueueRun& queue, const BoundPiece& piece) {
  for (std::size_t i = 0; i < piece.ends.size(); ++i) {
    Status status;
    for (const CommOp& op : piece.exchange(i))
      if (status.ok()) status = exchange(queue, op);
    tell([&](Probe& probe, double at) { probe.waits(queue.index, false, at); });
    if (!status.ok()) return status;
    if (poison_) Poison::spoil(piece, i);
  }
  return {};
}

Status Executor::exchange(QueueRun& queue, const CommOp& op) {
  const auto wire = [&](const CommOp& here) {
    const Status status = queue.comm.comm->start(queue.comm.communicator, &here, 1, queue.stream);
    if (!status.ok()) return status;
    tell([&](Probe& probe, double at) { probe.waits(queue.index, true, at); });
    return queue.comm.comm->finish(queue.comm.communicator);
  };
  return queue.staging ? queue.staging->exchange(op, wire) : wire(op);
}

// ---------------------------------------------------------------- asynchronous queues

void Executor::feed_queues() {
  ::prctl(PR_SET_NAME, "prun-feeder");
  for (auto& queue : queues_)
    if (const Status status = queue->asynchronous ? queue->device.attach(queue->handle) : Status{};
        !status.ok())
      fail(*queue, status, 0);
  for (std::int64_t step = 0; may_run(step); ++step)
    for (const auto& [queue, bound] : fed_) feed_call(*queue, *bound, step);
}

// Whether works can wait in the queue until all of a call are there: what the device notes then is its own
// time, and not the host's for the next launch. All of them, stamps and waits must find room beside it.
bool Executor::may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side) const {
  const auto entries = static_cast<std::int64_t>(2 * (side.works->size() + bound.waits.size()) + 4);
  return !side.works->empty() && (queue.depth == 0 || entries <= queue.depth / 2);
}

// Everything of a failed queue's call is left out: its device does nothing any more.
void Executor::feed_call(QueueRun& queue, const BoundCall& bound, std::int64_t step) {
  if (queue.has_failed()) return;
  const BoundSide& side = bound.side(step);
  Status status;
  const auto then = [&status](auto&& next) {
    if (status.ok()) status = next();
  };
  auto stamp = side.stamps.begin();
  const auto note = [&] {
    if (stamp != side.stamps.end()) then([&] { return queue.device.stamp(queue.handle, *stamp++); });
  };
  auto edge = bound.edges.begin();
  auto edge_stamp = side.edges.begin();
  const bool measured = is_measured(step);
  const auto pass_edge = [&] {
    if (*edge++ && measured) then([&] { return queue.device.stamp(queue.handle, *edge_stamp++); });
  };
  const bool held = one_by_one(step) && may_hold(queue, bound, side);
  if (held)
    then([&, gate = gates_->close(static_cast<std::size_t>(queue.index))] {
      return queue.device.wait_counter(queue.handle, gate.counter, gate.opens_at);
    });
  note();
  for (const BoundWait& waits : bound.waits) {
    pass_edge();
    if (step >= waits.wait->steps_ago) then([&] { return feed_wait(queue, waits, step); });
    note();
  }
  pass_edge();
  for (BoundWork work : *side.works) {
    then([&] { return queue.device.run(queue.handle, work); });
    note();
  }
  if (held) gates_->open(static_cast<std::size_t>(queue.index));
  for_exchanges(*side.piece, [&](std::span<const CommOp> ops) {
    then([&] {
      return queue.comm.comm->start(queue.comm.communicator, ops.data(),
                                    static_cast<std::int64_t>(ops.size()), queue.stream);
    });
    note();
  });
  if (side.event) then([&] { return queue.device.record(queue.handle, side.event); });
  if (bound.signals)
    then([&] {
      return queue.device.write_counter(queue.handle, &queue.ticket.counter(),
                                        ticket(queue.index, step, bound.call->position));
    });
  if (!status.ok()) fail(queue, status, step);
}

Status Executor::feed_wait(QueueRun& queue, const BoundWait& waits, std::int64_t step) {
  const Wait& wait = *waits.wait;
  const std::int64_t of_step = step - wait.steps_ago;
  if (waits.event_of) return queue.device.wait(queue.handle, waits.event_of->side(of_step).event);
  return queue.device.wait_counter(queue.handle, &waits.other->ticket.counter(),
                                   ticket(wait.queue, of_step, wait.call));
}

}  // namespace prun
