// What may hold queues up beside their waits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct QueueLimits {
  bool asynchronous = false;  // its rank's feeder fills it; else it has a thread of its own
  // Pieces of work that it takes before it holds the feeder, as a device counts them; 0: any number.
  std::int64_t depth = 0;
  // Exchanges that a rank has under way at a time on all asynchronous queues with this word, which begin in
  // the order of the plan where there are more such queues than that; 0: any number.
  std::int64_t resident = 0;
  std::string pool = {};
};

struct Limits {
  std::function<QueueLimits(const QueueInfo&)> of;
  bool stamps = false;  // timed probes ask for them: the feeder hands them over as well
};

}  // namespace prun
