#include "execute/queue_feeder.hpp"

#include <sys/prctl.h>

#include "base/thread.hpp"

namespace prun {

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

namespace {

// Feeds one call to its queue: the first error ends it.
class CallFeed {
 public:
  CallFeed(const Plan& plan, QueueRun& queue, const BoundCall& bound, const BoundSide& side, bool measured)
      : plan_(plan),
        call_(*bound.call),
        queue_(queue),
        end_(side.stamps.end()),
        stamp_(side.stamps.begin()),
        edge_stamp_(side.edges.begin()),
        measured_(measured) {}

  template <class Next>
  void then(Next&& next) {
    if (status_.ok()) status_ = next();
  }
  void note() {
    if (stamp_ != end_) then([&] { return queue_.device.stamp(queue_.handle, *stamp_++); });
  }
  void pass_edge() {
    if (measured_ && is_edge(plan_, call_, wait_++))
      then([&] { return queue_.device.stamp(queue_.handle, *edge_stamp_++); });
  }
  const Status& status() const { return status_; }

 private:
  const Plan& plan_;
  const Call& call_;
  QueueRun& queue_;
  Status status_;
  const std::vector<Stamp>::const_iterator end_;
  std::vector<Stamp>::const_iterator stamp_;
  std::size_t wait_ = 0;
  std::vector<Stamp>::const_iterator edge_stamp_;
  const bool measured_;
};

}  // namespace

// Leaves out all of a failed queue's call: its device does nothing any more.
void QueueFeeder::feed_call(QueueRun& queue, const BoundCall& bound, std::int64_t round) {
  if (queue.has_failed()) return;
  const std::int64_t step = steps_.run(round).step;
  const bool runs = bound.call->runs_in(steps_.run(round).round);
  if (saves_ && bound.call->save_read >= 0) saves_->await(bound.call->save_read);
  const BoundSide& side = bound.side(step);
  CallFeed feed(queues_.plan(), queue, bound, side,
                watchers_.notes_waits(queue.info, step) && steps_.run(round).begins_step());
  const bool held = runs && watchers_.one_by_one(step) && may_hold(queue, bound, side);
  if (held)
    feed.then([&, gate = gates_->close(static_cast<std::size_t>(queue.index))] {
      return queue.device.wait_counter(queue.handle, gate.counter, gate.opens_at);
    });
  feed.note();
  for (const BoundWait& waits : bound.waits) {
    feed.pass_edge();
    if (round >= waits.wait->steps_ago) feed.then([&] { return feed_wait(queue, waits, round); });
    feed.note();
  }
  feed.pass_edge();
  for (BoundWork work : *side.works) {
    if (runs) feed.then([&] { return queue.device.run(queue.handle, work); });
    feed.note();
  }
  if (held) gates_->open(static_cast<std::size_t>(queue.index));
  watchers_.for_exchanges(*side.piece, [&](std::span<const CommOp> ops) {
    const auto start = [&] {
      return queue.comm.comm->start(queue.comm.communicator, ops.data(),
                                    static_cast<std::int64_t>(ops.size()), queue.stream);
    };
    if (runs) feed.then(start);
    feed.note();
  });
  if (side.event) feed.then([&] { return queue.device.record(queue.handle, side.event); });
  if (bound.signals)
    feed.then([&] {
      return queue.device.write_counter(queue.handle, &queue.ticket.counter(),
                                        queue.ticket_of(round, bound.call->position));
    });
  if (!feed.status().ok()) queues_.fail(queue, feed.status(), round);
}

Status QueueFeeder::feed_wait(QueueRun& queue, const BoundWait& waits, std::int64_t round) const {
  const std::int64_t of = round - waits.wait->steps_ago;
  if (waits.event_of) return queue.device.wait(queue.handle, waits.event_of->side(steps_.run(of).step).event);
  return queue.device.wait_counter(queue.handle, &waits.other->ticket.counter(),
                                   waits.other->ticket_of(of, waits.wait->call));
}

}  // namespace prun
