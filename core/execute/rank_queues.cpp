#include "execute/rank_queues.hpp"

#include <algorithm>
#include <string>

#include "base/thread.hpp"
#include "execute/communicators.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- staging

StagingSlots slots_of(std::span<const CommOp> ops, std::int64_t members) {
  StagingSlots slots;
  for (const CommOp& op : ops) slots.take(op, members);
  return slots;
}

}  // namespace

Staging::Staging(DeviceInterface& device, std::string_view queue, std::span<const CommOp> ops,
                 std::int64_t members)
    : device_(device),
      members_(members),
      slots_(slots_of(ops, members)),
      memory_(device, slots_.count * slots_.bytes) {
  if (slots_.count > 1)
    copier_ = start_thread("the copies of queue '" + std::string(queue) + "'", [this] { copy_all(); });
}

Staging::~Staging() {
  if (!copier_.joinable()) return;
  chunks_ = nullptr;
  asked_.ticket.publish(++operations_);
  copier_.join();
}

std::vector<CommOp> Staging::operations(std::span<const CommOp> ops) const {
  std::vector<CommOp> all;
  for (const CommOp& op : ops) {
    const StagedChunks chunks(op, members_);
    for (std::int64_t i = 0; i < chunks.count(); ++i) all.push_back(chunks.at(i, slot(i)));
  }
  return all;
}

Status Staging::bring(const StagedChunks& chunks, std::int64_t chunk) const {
  Status status;
  chunks.each_read(chunk, slot(chunk), [&](std::byte* device, std::byte* pinned, std::int64_t bytes) {
    if (status.ok()) status = device_.download(pinned, device, bytes);
  });
  return status;
}

Status Staging::take(const StagedChunks& chunks, std::int64_t chunk) const {
  Status status;
  chunks.each_written(chunk, slot(chunk), [&](std::byte* device, std::byte* pinned, std::int64_t bytes) {
    if (status.ok()) status = device_.upload(device, pinned, bytes);
  });
  return status;
}

// ---------------------------------------------------------------- who exchanges

void Staging::begin(const StagedChunks& chunks) {
  chunks_ = &chunks;
  given_up_ = false;
  asked_.ticket.publish(++operations_);
}

bool Staging::may_travel(std::int64_t chunk) {
  brought_.ticket.await(chunks_before_ + static_cast<std::uint64_t>(chunk) + 1);
  return !given_up_;
}

void Staging::has_travelled(std::int64_t chunk, const Status& status) {
  if (!status.ok()) given_up_ = true;
  travelled_.ticket.publish(chunks_before_ + static_cast<std::uint64_t>(chunk) + 1);
}

Status Staging::end() {
  chunks_before_ += static_cast<std::uint64_t>(chunks_->count());
  travelled_.ticket.publish(chunks_before_);
  done_.ticket.await(operations_);
  return status_;
}

// ---------------------------------------------------------------- who copies

void Staging::copy_all() {
  status_ = device_.make_current();
  for (std::uint64_t operation = 1;; ++operation) {
    asked_.ticket.await(operation);
    if (!chunks_) return;
    copy(*chunks_);
    done_.ticket.publish(operation);
  }
}

// Copies chunks: a slot is free once what was in it is copied back.
void Staging::copy(const StagedChunks& chunks) {
  const std::uint64_t before = brought_.counter.load();
  const auto then = [&](auto&& next) {
    if (status_.ok() && !given_up_) status_ = next();
    if (!status_.ok()) given_up_ = true;
  };
  const auto bring_next = [&](std::int64_t chunk) {
    if (chunk >= chunks.count()) return;
    then([&] { return bring(chunks, chunk); });
    brought_.ticket.publish(before + static_cast<std::uint64_t>(chunk) + 1);
  };
  for (std::int64_t i = 0; i < slots_.count; ++i) bring_next(i);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    travelled_.ticket.await(before + static_cast<std::uint64_t>(i) + 1);
    then([&] { return take(chunks, i); });
    bring_next(i + slots_.count);
  }
}

// ------------------------------------------------------------------- rank queues

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
  if (call.behind == 0 || call.behind < queue.iterations_behind) return;
  queue.iterations_behind = call.behind;
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
    if (queue.asynchronous) submitted_.emplace_back(&queue, &queue.calls[call.position]);
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
