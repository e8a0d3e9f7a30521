// States what may delay queues beside their waits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct QueueLimits {
  bool asynchronous = false;  // whether its rank's feeder fills it; otherwise it has a thread of its own
  // It takes so many pieces of work before it blocks the feeder, as a device counts them; 0: any number.
  std::int64_t depth = 0;
  // A rank has at most so many exchanges under way at a time on all asynchronous queues with this word, which
  // begin in the order of the plan if there are more such queues than that; 0: any number.
  std::int64_t resident = 0;
  std::string pool = {};
};

struct Limits {
  std::function<QueueLimits(const QueueInfo&)> of;
  bool stamps = false;  // timed probes need stamps, which the feeder hands over as well
};

}  // namespace prun
