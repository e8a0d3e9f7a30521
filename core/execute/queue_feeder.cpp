#include "execute/queue_feeder.hpp"

#include <sys/prctl.h>
#include <chrono>

#include "base/thread.hpp"

namespace prun {
namespace {

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

void QueueFeeder::start() {
  if (!queues_.fed().empty()) thread_ = start_thread("the device's queues", [this] { run(); });
}

void QueueFeeder::join() {
  if (thread_.joinable()) thread_.join();
}

void QueueFeeder::run() {
  ::prctl(PR_SET_NAME, "prun-feeder");
  for (auto& queue : queues_.all())
    if (const Status status = queue->asynchronous ? queue->device.attach(queue->handle) : Status{};
        !status.ok())
      queues_.fail(*queue, status, 0);
  for (std::int64_t round = 0; steps_.may_run(round); ++round)
    for (const auto& [queue, bound] : queues_.fed()) feed_call(*queue, *bound, round);
}

// Says whether works can wait in the queue until all of a call are there: then the times that the device
// notes are its own, and contain nothing of the host's for the next launch. All works, stamps and waits must
// find room beside the gate.
bool QueueFeeder::may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side) {
  const auto entries = static_cast<std::int64_t>(2 * (side.works->size() + bound.waits.size()) + 4);
  return !side.works->empty() && (queue.depth == 0 || entries <= queue.depth / 2);
}

FedCall QueueFeeder::fed_of(const QueueRun& queue, const BoundCall& bound, std::int64_t round) const {
  const std::int64_t step = steps_.run(round).step;
  const BoundSide& side = bound.side(step);
  return {.works = side.works->size(),
          .exchanges = side.piece->ends.size(),
          .one_by_one = watchers_.parts_of(*side.piece) > 1,
          .stamps = !side.stamps.empty(),
          .edges = watchers_.notes_waits(queue.info, step) && steps_.run(round).begins_step(),
          .event = side.event != nullptr,
          .counter = bound.signals};
}

// Leaves out all of a failed queue's call: its device does nothing any more. The first error ends the call.
void QueueFeeder::feed_call(QueueRun& queue, const BoundCall& bound, std::int64_t round) {
  if (queue.has_failed()) return;
  const bool runs = bound.call->runs_in(steps_.run(round).round);
  if (saves_ && bound.call->save_read >= 0) saves_->await(bound.call->save_read);
  const BoundSide& side = bound.side(steps_.run(round).step);
  const bool held = runs && watchers_.one_by_one(steps_.run(round).step) && may_hold(queue, bound, side);
  Status status;
  if (held) {
    const auto gate = gates_->close(static_cast<std::size_t>(queue.index));
    status = queue.device.wait_counter(queue.handle, gate.counter, gate.opens_at);
  }
  auto stamp = side.stamps.begin(), edge = side.edges.begin();
  const FedCall fed = fed_of(queue, bound, round);
  feed_script(queues_.plan(), *bound.call, round, fed, script_);
  for (const FedPiece& piece : script_) {
    if (!status.ok()) break;
    switch (piece.kind) {
      case FedPiece::Kind::stamp: status = queue.device.stamp(queue.handle, *stamp++); break;
      case FedPiece::Kind::edge: status = queue.device.stamp(queue.handle, *edge++); break;
      case FedPiece::Kind::wait: status = feed_wait(queue, bound.waits[piece.number], round); break;
      case FedPiece::Kind::work:
        if (runs) status = queue.device.run(queue.handle, (*side.works)[piece.number]);
        break;
      case FedPiece::Kind::exchanges:
        if (runs && fed.one_by_one) status = start(queue, side.piece->exchange(piece.number - 1));
        if (runs && !fed.one_by_one) status = start(queue, side.piece->exchanges);
        break;
      case FedPiece::Kind::event: status = queue.device.record(queue.handle, side.event); break;
      case FedPiece::Kind::counter:
        status = queue.device.write_counter(queue.handle, &queue.ticket.counter(),
                                            queue.ticket_of(round, bound.call->position));
        break;
    }
  }
  if (held) gates_->open(static_cast<std::size_t>(queue.index));
  if (!status.ok()) queues_.fail(queue, status, round);
}

Status QueueFeeder::start(QueueRun& queue, std::span<const CommOp> exchanges) {
  return queue.comm.comm->start(queue.comm.communicator, exchanges.data(),
                                static_cast<std::int64_t>(exchanges.size()), queue.stream);
}

Status QueueFeeder::feed_wait(QueueRun& queue, const BoundWait& waits, std::int64_t round) const {
  const std::int64_t of = round - waits.wait->steps_ago;
  if (waits.event_of) return queue.device.wait(queue.handle, waits.event_of->side(steps_.run(of).step).event);
  return queue.device.wait_counter(queue.handle, &waits.other->ticket.counter(),
                                   waits.other->ticket_of(of, waits.wait->call));
}

}  // namespace prun
