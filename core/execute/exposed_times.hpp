// Sums the exposed communication of real steps (simulate/events.hpp) from what queues note of their waits.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/rank_queues.hpp"
#include "execute/watchers.hpp"

namespace prun {

class ExposedTimes {
 public:
  // Both must outlive it.
  ExposedTimes(const RankQueues& queues, const Watchers& watchers)
      : queues_(queues), watchers_(watchers), before_(queues.plan().queues.size()) {}

  // Returns the seconds of a step that is measured and done; of another it returns 0, and takes what
  // communication waited for there: a step's first exchanges may be waited for in the next one. It is called
  // for each step in turn.
  double take(std::int64_t step);

 private:
  std::vector<HeldUp> take_waits(QueueRun& queue, std::int64_t step) const;

  const RankQueues& queues_;
  const Watchers& watchers_;
  Numbered<std::vector<HeldUp>> before_;  // of the step before, by queue
};

}  // namespace prun
