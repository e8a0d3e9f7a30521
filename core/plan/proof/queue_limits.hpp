// Limits that may delay or deadlock queues, besides their waits. Example: a CUDA stream takes about a
// thousand launches before the next one blocks the host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct QueueLimits {
  bool asynchronous = false;  // its rank's feeder fills it; otherwise it has a thread
  // Works that it holds before the feeder blocks, as a device counts them; 0: unlimited.
  std::int64_t depth = 0;
  // Collectives that a rank may run at a time on all asynchronous queues with this `pool`; more queues than
  // that start them in the order of the plan. 0: unlimited.
  std::int64_t resident = 0;
  std::string pool = {};
};

struct Limits {
  std::function<QueueLimits(const QueueInfo&)> of;
  bool stamps = false;  // timed probes need stamps, which the feeder hands over too
};

}  // namespace prun
