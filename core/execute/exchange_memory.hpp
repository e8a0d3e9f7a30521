// Gives the comm plugins of a rank's queues its memory, and what they need of their own.
#pragma once

#include <deque>
#include <vector>

#include "execute/rank_queues.hpp"
#include "execute/watchers.hpp"

namespace prun {

class ExchangeMemory {
 public:
  // Attaches the memory; this is collective and comes before the first step, like all that may block the
  // device. `known` says that the communicators know the memory already.
  void attach(const RankQueues& queues, const PlanMemory& memory, bool known, const Watchers& watchers);

 private:
  void attach_staging(QueueRun& queue, const std::vector<CommOp>& ops);

  std::deque<Staging> stagings_;
  AttachedMemory attached_;
};

}  // namespace prun
