// Holds what queues are given of their calls: works of launches, events for waits, stamps for measuring. It
// owns what devices keep of them, and must outlive the queues, which may still hold work that needs it.
#pragma once

#include <deque>
#include <vector>

#include "execute/owned_handle.hpp"
#include "execute/rank_queues.hpp"
#include "execute/watchers.hpp"

namespace prun {

class QueueWorks {
 public:
  // `apart` says that each launch is a work, whatever watches.
  QueueWorks(const Watchers& watchers, bool apart) : watchers_(watchers), apart_(apart) {}

  // These are called in this order; the queues' calls are bound.
  void bind_waits(const RankQueues& queues);
  void bind_works(const RankQueues& queues);
  void bind_stamps(const RankQueues& queues);

 private:
  bool are_one(const QueueRun& queue, const BoundCall& first, const BoundCall& second, int side) const;
  void bind_works(QueueRun& queue, int side);
  const std::vector<BoundWork>& works_of(QueueRun& queue, const std::vector<const BoundPiece*>& pieces,
                                         bool one_by_one);
  void stamp_edges(const Plan& plan, QueueRun& queue);

  const Watchers& watchers_;
  const bool apart_;
  std::deque<std::vector<Launch>> launches_;  // launches of calls that became one
  std::deque<OwnedEvent> events_;
  std::deque<OwnedStamp> stamps_;
};

}  // namespace prun
