#include "execute/queue_comm.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace prun {

std::vector<std::size_t> by_name(const std::vector<QueueInfo>& queues) {
  std::vector<std::size_t> order(queues.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return queues[a].name < queues[b].name; });
  return order;
}

AttachedMemory::~AttachedMemory() {
  for (const QueueComm& queue : attached_) queue.comm->detach_memory(queue.communicator);
}

void AttachedMemory::attach(const QueueComm& queue, std::span<std::byte> memory, std::span<const CommOp> ops,
                            void* stream) {
  raise(
      queue.comm->attach_memory(queue.communicator, memory.data(), static_cast<std::int64_t>(memory.size())));
  attached_.push_back(queue);
  connect(queue, ops, stream);
}

void AttachedMemory::connect(const QueueComm& queue, std::span<const CommOp> ops, void* stream) {
  const std::vector<CommOp> once = distinct(ops);
  raise(queue.comm->connect(queue.communicator, once.data(), static_cast<std::int64_t>(once.size()), stream));
}

std::vector<CommOp> distinct(std::span<const CommOp> ops) {
  std::set<std::tuple<CommKind, Reduction, DType, std::int32_t, std::int64_t>> seen;
  std::vector<CommOp> once;
  for (const CommOp& op : ops)
    if (seen.emplace(op.kind, op.reduction, op.dtype, op.peer, op.count).second) once.push_back(op);
  return once;
}

}  // namespace prun
