// Answers what a simulation asks about time: seconds of kernels and collectives, overheads, and bandwidths
// that calls share. TableCostModel answers from a cost table; tests answer with fixed numbers. Example: a
// kernel of 2 ms, and 5 us to hand its result to a queue that waits.
#pragma once

#include <string_view>

#include "plan/plan.hpp"

namespace prun {

// Seconds that the executor adds.
struct Overheads {
  double call = 0;     // per call
  double handoff = 0;  // from the end of a call until a waiting queue goes on
};

// Bytes that compete with other calls.
struct Carried {
  double host = 0;         // through host memory
  double link_bytes = 0;   // through a link of its rank
  std::int32_t link = -1;  // number of that link; -1: none
  double drives = 0;       // read from or written to drives
};

// Times in seconds.
class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double kernel(const Program& program, const PlannedStep& step) = 0;
  // `queue` is the queue's name.
  virtual double exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) = 0;
  // Does the same if members are on several hosts.
  virtual double far_exchange(const PlannedExchange& one, std::int64_t members, std::string_view queue) {
    return exchange(one, members, queue);
  }
  // Returns the part that does not depend on bytes; collectives that start together take it once.
  virtual double fixed(const PlannedExchange&, std::int64_t /*members*/) { return 0; }
  // Returns the mean delay of the last member: no two ranks are equally fast.
  virtual double lateness(const PlannedExchange&, std::int64_t /*members*/, std::string_view /*queue*/) {
    return 0;
  }
  // Returns the share of their rate that the first device's kernels reach while it communicates.
  virtual double share_beside_exchanges() { return 1; }
  virtual Overheads overheads() { return {}; }
  virtual Carried carried(const Program&, const Plan&, const PlannedStep&) { return {}; }
  // Returns the bytes a second of a host's memory; 0: unlimited.
  virtual double host_bandwidth() { return 0; }
  // Returns the bytes a second of a host's drives, both directions together; 0: unlimited.
  virtual double drive_bandwidth() { return 0; }
};

}  // namespace prun
