// Simulates calls that share a memory or a link. If there is enough for all, each gets what it needs;
// otherwise each gets the same share of its load. So a copy with a small load never waits for an update that
// could use everything. Example: loads of 40 and 20 GB/s on a memory of 30 GB/s: both run at half speed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace prun {

class Sharing {
 public:
  // Returns the number of a carrier with that bandwidth. Carriers are applied in the order in which they were
  // added: a call that one slows down needs less of the next.
  std::size_t add_carrier(double bytes_per_second);

  // Load of a call on a carrier.
  struct Load {
    std::size_t carrier = 0;
    double bytes_per_second = 0;  // if nothing delays the call
    double times = 1;             // identical calls at the same time
    bool is_held_up = true;       // false: it takes from others but is never delayed
  };
  // Starts a call that takes `seconds` if nothing delays it. `at` must not be before the last result of
  // next().
  void begin(std::size_t tag, double at, double seconds, std::vector<Load> loads);

  struct Ended {
    std::size_t tag = 0;
    double at = 0;
  };
  // Returns the next call to end, or nothing.
  std::optional<Ended> next();

 private:
  struct Work {
    std::size_t tag = 0;
    double since = 0;  // when it got its present speed
    double left = 0;   // seconds left at full speed
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
