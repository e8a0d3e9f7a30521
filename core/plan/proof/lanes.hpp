// Queues of simulated ranks (lanes): how far each has come, and which may proceed. Example: of 8 identical
// ranks with 4 queues each, one rank is simulated: 4 lanes.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "plan/proof/alike.hpp"

namespace prun {

// A queue of a simulated rank.
struct Lane {
  std::size_t rank = 0;  // class of the rank
  std::int32_t queue = 0;
  Numbered<const Call*> calls;  // of a step
  std::size_t ended = 0;        // over all steps
  std::size_t exchange = 0;     // finished collectives of the current call
  std::size_t behind = 0;       // calls after its own iteration to the last of a step

  // The current call is the next to end.
  std::int64_t step() const { return static_cast<std::int64_t>(ended / calls.size()); }
  const Call& call() const { return *calls[ended % calls.size()]; }
  // Returns the position of a call among those of all steps.
  std::size_t ticket(std::int64_t step, std::int32_t call) const {
    return static_cast<std::size_t>(step) * calls.size() + static_cast<std::size_t>(call);
  }
  // Returns the number of calls until so many steps have ended, the last possibly in a later iteration.
  std::size_t calls_until(std::size_t steps) const { return steps * calls.size() + behind; }
  void end_call() {
    ++ended;
    exchange = 0;
  }
};

class Lanes {
 public:
  // Makes lanes for one rank of each class, for `steps` steps. The classes must outlive it.
  Lanes(const RankClasses& ranks, std::int64_t steps);

  std::size_t count() const { return lanes_.size(); }
  std::int64_t steps() const { return steps_; }
  // Returns more than the number of steps if steps overlap: the last of them end in further ones.
  std::int64_t rounds() const { return rounds_; }
  bool overlaps() const { return rounds_ > steps_; }
  Round round_of(const Lane& lane) const {
    const std::int64_t round = lane.step();
    return {static_cast<std::int32_t>(std::min<std::int64_t>(round, Round::many)),
            static_cast<std::int32_t>(std::max<std::int64_t>(0, round + 1 - steps_))};
  }
  // Returns false if the lane's next call does nothing in this iteration.
  bool runs(const Lane& lane) const { return lane.call().runs_in(round_of(lane)); }
  Lane& operator[](std::size_t lane) { return lanes_[lane]; }
  const Lane& operator[](std::size_t lane) const { return lanes_[lane]; }
  std::vector<Lane>::const_iterator begin() const { return lanes_.begin(); }
  std::vector<Lane>::const_iterator end() const { return lanes_.end(); }
  std::size_t of(std::size_t rank, std::int32_t queue) const {
    return first_[rank] + static_cast<std::size_t>(queue);
  }

  const SimulatedRank& rank_of(const Lane& lane) const { return ranks_.first(lane.rank); }
  const QueueInfo& info_of(const Lane& lane) const { return rank_of(lane).plan->queues[lane.queue]; }
  // Returns null if it does not communicate.
  const Group& group_of(const Lane& lane) const { return rank_of(lane).groups[lane.queue]; }
  bool is_unfinished(const Lane& lane) const { return !lane.calls.empty() && lane.step() < rounds_; }
  // Waits for steps before the first are over.
  bool is_over(const Lane& lane, const Wait& wait) const {
    const std::int64_t step = lane.step() - wait.steps_ago;
    if (step < 0) return true;
    const Lane& other = lanes_[of(lane.rank, wait.queue)];
    return other.ticket(step, wait.call) < other.ended;
  }
  // Names rank, queue and current call.
  std::string text_of(const Lane& lane) const;

  // Awake lanes run in the order in which they were woken.
  void wake(std::size_t lane);
  void wake_rank(std::size_t rank);
  void wake_all();
  std::optional<std::size_t> next_awake();

 private:
  const RankClasses& ranks_;
  const std::int64_t steps_;
  std::int64_t rounds_;
  std::vector<Lane> lanes_;
  std::vector<std::size_t> first_;  // by rank, and the end
  std::deque<std::size_t> awake_;
  std::vector<bool> is_awake_;  // by lane
};

}  // namespace prun
