// A simulation asks this for what kernels, exchanges and the executor itself take.
#pragma once

#include <string_view>

#include "plan/plan.hpp"

namespace prun {

// States what the executor adds, in seconds.
struct Overheads {
  double call = 0;     // to each call
  double handoff = 0;  // from the end of a call until a queue that stood still for it goes on
};

// Counts bytes that a step moves through what others use at the same time.
struct Carried {
  double host = 0;         // through memory of the host
  double link_bytes = 0;   // through a link of its rank's
  std::int32_t link = -1;  // which one, by a number of the prices' own; none where it is -1
};

// States what things take, in seconds.
class Prices {
 public:
  virtual ~Prices() = default;
  virtual double kernel(const Program& program, const PlannedStep& step) = 0;
  // `queue`: the name of the queue it is in.
  virtual double exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) = 0;
  // Is the same where not all members are on one host.
  virtual double far_exchange(const PlannedExchange& one, std::int64_t members, std::string_view queue) {
    return exchange(one, members, queue);
  }
  // What of that it takes however little it carries: those that are started together take it once.
  virtual double fixed(const PlannedExchange&, std::int64_t /*members*/) { return 0; }
  // Returns how much later than on average the last of members that do the same is there: no two ranks are
  // equally fast.
  virtual double lateness(const PlannedExchange&, std::int64_t /*members*/, std::string_view /*queue*/) {
    return 0;
  }
  // The first device's kernels reach this share of their rate while it exchanges beside them.
  virtual double share_beside_exchanges() { return 1; }
  virtual Overheads overheads() { return {}; }
  virtual Carried carried(const Program&, const Plan&, const PlannedStep&) { return {}; }
  // Bytes a second that go through memory of a host; 0: nobody is held up there.
  virtual double host_bandwidth() { return 0; }
};

}  // namespace prun
