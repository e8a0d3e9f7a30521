// Gives a simulation the times of kernels, exchanges and the executor itself.
#pragma once

#include <string_view>

#include "plan/plan.hpp"

namespace prun {

// States what the executor adds, in seconds.
struct Overheads {
  double call = 0;     // overhead of each call
  double handoff = 0;  // time from the end of a call until a queue that stood still for it goes on
};

// Counts bytes that a step moves through what others use at the same time.
struct Carried {
  double host = 0;         // bytes through host memory
  double link_bytes = 0;   // bytes through a link of its rank
  std::int32_t link = -1;  // number of that link, counted by the prices; -1: none
  double drives = 0;       // bytes read from drives of the host, or written to them
};

// States what things take, in seconds.
class Prices {
 public:
  virtual ~Prices() = default;
  virtual double kernel(const Program& program, const PlannedStep& step) = 0;
  // Returns the time of an exchange in the queue of that name.
  virtual double exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) = 0;
  // Returns the same if not all members are on one host.
  virtual double far_exchange(const PlannedExchange& one, std::int64_t members, std::string_view queue) {
    return exchange(one, members, queue);
  }
  // Returns the part of that time that does not depend on bytes: exchanges that are started together take it
  // once.
  virtual double fixed(const PlannedExchange&, std::int64_t /*members*/) { return 0; }
  // Returns how much later than the average the last of several equal members arrives: no two ranks are
  // equally fast.
  virtual double lateness(const PlannedExchange&, std::int64_t /*members*/, std::string_view /*queue*/) {
    return 0;
  }
  // Returns the share of their rate that the first device's kernels reach while it exchanges beside them.
  virtual double share_beside_exchanges() { return 1; }
  virtual Overheads overheads() { return {}; }
  virtual Carried carried(const Program&, const Plan&, const PlannedStep&) { return {}; }
  // Returns the bytes a second that go through memory of a host; 0: it delays no work.
  virtual double host_bandwidth() { return 0; }
  // Returns the bytes a second that drives of a host move, both ways together; 0: any number.
  virtual double drive_bandwidth() { return 0; }
};

}  // namespace prun
