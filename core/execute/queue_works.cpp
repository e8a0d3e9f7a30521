#include "execute/queue_works.hpp"

#include <algorithm>

#include "plan/proof/events.hpp"

namespace prun {

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
  for (const auto& [queue, bound] : queues.fed())
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

}  // namespace prun
