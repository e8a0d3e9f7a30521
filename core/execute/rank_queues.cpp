#include "execute/rank_queues.hpp"

#include <algorithm>

#include "execute/rank_devices.hpp"

namespace prun {

QueueRun::QueueRun(DeviceInterface& its_device, const QueueInfo& queue, Counter& counter,
                   bool is_asynchronous)
    : info(queue),
      device(its_device),
      asynchronous(is_asynchronous),
      device_text(detail::concat("device '", info_of(its_device).name.view(), "'")),
      depth(info_of(its_device).queue_depth),
      ticket(counter, is_asynchronous) {
  raise(device.create_queue(queue.name, queue.workers, &handle));
}

QueueRun::~QueueRun() { device.destroy_queue(handle); }

void RankQueues::create(const Devices& devices, const Counters& counters,
                        const std::vector<QueueComm>& comms) {
  for (std::size_t q = 0; q < plan_.queues.size(); ++q) {
    const QueueInfo& queue = plan_.queues[q];
    DeviceInterface& device = *devices.at(queue.device);
    const bool asynchronous = info_of(device).asynchronous;
    PRUN_CHECK((queue.axis != no_axis) == (comms[q].comm != nullptr), "queue ", queue.name);
    PRUN_CHECK(!comms[q].enqueues || asynchronous, "queue ", queue.name);
    queues_.push_back(std::make_unique<QueueRun>(device, queue, counters[q],
                                                 asynchronous && (!comms[q].comm || comms[q].enqueues)));
    queues_.back()->index = static_cast<std::int32_t>(q);
    queues_.back()->comm = comms[q];
    if (asynchronous) raise(device.stream(queues_.back()->handle, &queues_.back()->stream));
  }
}

namespace {

void note_end(QueueRun& queue, const Call& call) {
  if (call.behind == 0 || call.behind < queue.rounds_behind) return;
  queue.rounds_behind = call.behind;
  queue.last_behind = call.position;
}

}  // namespace

void RankQueues::bind(Binding& binding) {
  for (auto& queue : queues_) queue->held_up.resize(static_cast<std::size_t>(plan_.staging_copies));
  for (const Call& call : plan_.calls) {
    BoundCall& bound = (*this)[call.queue].calls.emplace_back();
    bound.call = &call;
    bound.sides.resize(static_cast<std::size_t>(plan_.staging_copies));
    for (int side = 0; side < plan_.staging_copies; ++side)
      bound.sides[static_cast<std::size_t>(side)].piece = &binding.bind(call, side);
    note_end((*this)[call.queue], call);
  }
  for (const Call& call : plan_.calls) {
    QueueRun& queue = (*this)[call.queue];
    if (queue.asynchronous) fed_.emplace_back(&queue, &queue.calls[call.position]);
  }
}

std::uint64_t RankQueues::tickets_written() const {
  std::uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue->ticket.counter().load();
  return sum;
}

bool RankQueues::have_failed() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->has_failed(); });
}

void RankQueues::fail(QueueRun& queue, const Status& status, std::int64_t step) {
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

}  // namespace prun
