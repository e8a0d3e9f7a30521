// Simulates works that move bytes through the same memory or link at the same time. Each gets as much as it
// would alone if there is enough for all; otherwise all get the same part of their loads: so a copy with a
// small load never waits behind an update that could use everything.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace prun {

class Sharing {
 public:
  // Adds a carrier of a bandwidth, and returns its number. Carriers are visited in the order of their adding:
  // a work that one delays needs less of the next.
  std::size_t add_carrier(double bytes_per_second);

  // States the load that a work puts on a carrier.
  struct Load {
    std::size_t carrier = 0;
    double bytes_per_second = 0;  // rate while nothing delays it
    double times = 1;             // number of works that do the same there at the same time
    bool is_held_up = true;       // whether this carrier can delay it; otherwise it only takes from others
  };
  // Begins a work that takes `seconds` while nothing delays it. `at` must not be before what next() gave
  // last.
  void begin(std::size_t tag, double at, double seconds, std::vector<Load> loads);

  struct Ended {
    std::size_t tag = 0;
    double at = 0;
  };
  // Returns the work that ends next, of those that have been begun, or nothing if there is none.
  std::optional<Ended> next();

 private:
  struct Work {
    std::size_t tag = 0;
    double since = 0;  // time since when it has gone on at this speed
    double left = 0;   // seconds that it would take alone from then on
    double speed = 1;
    std::vector<Load> loads;

    double end() const { return since + left / speed; }
  };

  std::vector<Work*> going_on();
  void set_speeds(std::span<Work* const> works) const;

  std::vector<double> carriers_;
  std::vector<Work> works_;
  double now_ = 0;
};

}  // namespace prun
