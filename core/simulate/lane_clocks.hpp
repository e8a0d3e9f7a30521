// Keeps the virtual time of each lane: when its calls ended, and so when what waits for them may begin.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "simulate/lanes.hpp"

namespace prun {

// Holds a lane's call under way, and when those before it ended.
struct LaneClock {
  double begin = 0, now = 0;
  bool begun = false;
  bool moving = false, moved = false;  // whether its bytes beside others are under way, or over
  bool enqueued = false;               // whether a call's exchanges are started together, on the device
  std::vector<double> ended;           // ends by ticket
  Numbered<double> saved;              // by position: the time before which a save lets no call begin; empty
                                       // without a save
};

class LaneClocks {
 public:
  // The host lets `running` steps run at a time.
  LaneClocks(const Lanes& lanes, std::int64_t running)
      : lanes_(lanes), running_(running), clocks_(lanes.count()) {}

  LaneClock& operator[](std::size_t lane) { return clocks_[lane]; }
  const LaneClock& operator[](std::size_t lane) const { return clocks_[lane]; }

  // Returns when the host lets a step begin, or nothing yet.
  std::optional<double> started(const Lane& lane) const {
    if (lane.step() < running_) return 0;
    const auto done = static_cast<std::size_t>(lane.step() - running_ + 1);  // counts steps
    double latest = 0;
    for (std::size_t q = 0; q < lanes_.rank_of(lane).plan->queues.size(); ++q) {
      const std::size_t number = lanes_.of(lane.rank, static_cast<std::int32_t>(q));
      const std::size_t calls = lanes_[number].calls_until(done);
      if (calls == 0) continue;
      if (lanes_[number].ended < calls) return {};
      latest = std::max(latest, clocks_[number].ended[calls - 1]);
    }
    return latest;
  }

  // Returns when a wait was over, which it is.
  double end_of(const Lane& lane, const Wait& wait) const {
    const std::int64_t step = lane.step() - wait.steps_ago;
    if (step < 0) return 0;
    const std::size_t other = lanes_.of(lane.rank, wait.queue);
    return clocks_[other].ended[lanes_[other].ticket(step, wait.call)];
  }

  // Returns, by round, when the last lane has ended it; all calls have run.
  Numbered<double> ends_of_rounds() const {
    Numbered<double> ends(lanes_.rounds(), 0.0);
    for (std::size_t lane = 0; lane < lanes_.count(); ++lane)
      if (const std::size_t calls = lanes_[lane].calls.size(); calls > 0)
        for (std::size_t round = 0; round < ends.size(); ++round)
          ends[round] = std::max(ends[round], clocks_[lane].ended[(round + 1) * calls - 1]);
    return ends;
  }

 private:
  const Lanes& lanes_;
  const std::int64_t running_;
  std::vector<LaneClock> clocks_;
};

}  // namespace prun
