// Works that move bytes through the same memory or link at the same time. Each gets as much as it would alone
// where that is enough for all; where not, all get the same part of what they ask for: nothing keeps a copy
// that asks for little from waiting behind an update that asks for all there is.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace prun {

class Sharing {
 public:
  // Adds a carrier of a bandwidth, and returns its number. Carriers are visited in the order of their adding:
  // a work that one holds up asks for less of the next.
  std::size_t add_carrier(double bytes_per_second);

  // States what a work asks of a carrier.
  struct Load {
    std::size_t carrier = 0;
    double bytes_per_second = 0;  // while nothing holds it up
    double times = 1;             // so many do the same there at the same time
    bool is_held_up = true;       // by this carrier; else it is there for others alone
  };
  // Begins a work that takes `seconds` while nothing holds it up. `at` must not be before what next() gave
  // last.
  void begin(std::size_t tag, double at, double seconds, std::vector<Load> loads);

  struct Ended {
    std::size_t tag = 0;
    double at = 0;
  };
  // The work that ends next, of those that have been begun; nothing: there is none.
  std::optional<Ended> next();

 private:
  struct Work {
    std::size_t tag = 0;
    double since = 0;  // from when on it has gone on at this speed
    double left = 0;   // seconds that it would take alone, then
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
