#include "execute/exchange_memory.hpp"

namespace prun {
namespace {

std::vector<CommOp> operations_of(const QueueRun& queue) {
  std::vector<CommOp> ops;
  for (const BoundCall& bound : queue.calls)
    for (const BoundSide& side : bound.sides)
      ops.insert(ops.end(), side.piece->exchanges.begin(), side.piece->exchanges.end());
  return ops;
}

void prepare_exchanges(const QueueRun& queue, const Watchers& watchers) {
  for (const BoundCall& bound : queue.calls)
    for (const BoundSide& side : bound.sides)
      watchers.for_exchanges(*side.piece, [&](std::span<const CommOp> ops) {
        raise(queue.comm.comm->prepare(queue.comm.communicator, ops.data(),
                                       static_cast<std::int64_t>(ops.size()), queue.stream));
      });
}

}  // namespace

void ExchangeMemory::attach(const RankQueues& queues, const PlanMemory& memory, bool known,
                            const Watchers& watchers) {
  for (const std::size_t q : by_name(queues.plan().queues)) {
    QueueRun& queue = *queues.all()[q];
    if (!queue.comm.comm) continue;
    const std::vector<CommOp> ops = operations_of(queue);
    if (queue.comm.staged)
      attach_staging(queue, ops);
    else if (known)
      AttachedMemory::connect(queue.comm, ops, queue.stream);
    else
      attached_.attach(queue.comm, memory.of_device(), ops, queue.stream);
    if (queue.asynchronous) prepare_exchanges(queue, watchers);
  }
}

void ExchangeMemory::attach_staging(QueueRun& queue, const std::vector<CommOp>& ops) {
  queue.staging = &stagings_.emplace_back(queue.device, queue.info.name, ops, queue.comm.members);
  attached_.attach(queue.comm, queue.staging->memory(), queue.staging->operations(ops), nullptr);
}

}  // namespace prun
