// Keeps places for exchanges: a rank may have a limited number under way at a time on all asynchronous queues
// of one pool. Where there are more such queues than that, exchanges begin in the order of the plan.
#pragma once

#include <deque>
#include <vector>

#include "simulate/lanes.hpp"
#include "simulate/queue_limits.hpp"

namespace prun {

class Places {
 public:
  // `limits` are by lane. The lanes must outlive the places.
  Places(Lanes& lanes, const std::vector<QueueLimits>& limits);

  // Says whether a lane's exchanges compete with others'.
  bool compete(std::size_t lane) const { return contenders_[lane].pool != no_pool; }
  // Hands the exchanges of a call over to their queue, behind earlier ones. This and the next functions do
  // nothing for a lane that does not compete.
  void hand_over(std::size_t lane);
  // Takes a place; returns whether the exchanges have one. When one is taken or left, the rank's other lanes
  // are woken.
  bool enter(std::size_t lane);
  void leave(std::size_t lane);

  // Says, for a lane that competes, whether no place is left; the next function says of how many.
  bool all_taken(std::size_t lane) const { return pool_of(lane).inside == pool_of(lane).most; }
  std::int64_t most(std::size_t lane) const { return pool_of(lane).most; }

 private:
  static constexpr std::size_t no_pool = static_cast<std::size_t>(-1);
  // Holds what exchanges of a rank compete for.
  struct Pool {
    std::int64_t most = 0, handed = 0, begun = 0, inside = 0;
  };
  struct Contender {
    std::size_t pool = no_pool;
    std::deque<std::int64_t> order;  // places in the pool's order, for exchanges handed over
    bool inside = false;
  };

  void make_pools(std::size_t first, std::size_t behind, const std::vector<QueueLimits>& limits);
  const Pool& pool_of(std::size_t lane) const { return pools_[contenders_[lane].pool]; }

  Lanes& lanes_;
  std::vector<Pool> pools_;
  std::vector<Contender> contenders_;  // contenders by lane
};

}  // namespace prun
