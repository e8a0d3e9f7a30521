#include "simulate/places.hpp"

#include <map>

namespace prun {

Places::Places(Lanes& lanes, const std::vector<QueueLimits>& limits)
    : lanes_(lanes), contenders_(lanes.count()) {
  for (std::size_t first = 0, behind = 0; first < lanes.count(); first = behind) {
    while (behind < lanes.count() && lanes[behind].rank == lanes[first].rank) ++behind;
    make_pools(first, behind, limits);
  }
}

// Makes the pools of one rank.
void Places::make_pools(std::size_t first, std::size_t behind, const std::vector<QueueLimits>& limits) {
  std::map<std::string, std::vector<std::size_t>> by_name;
  for (std::size_t lane = first; lane < behind; ++lane)
    if (limits[lane].asynchronous && limits[lane].resident != 0 && lanes_.group_of(lanes_[lane]))
      by_name[limits[lane].pool].push_back(lane);
  for (const auto& [name, members] : by_name) {
    const std::int64_t most = limits[members.back()].resident;
    if (static_cast<std::int64_t>(members.size()) <= most) continue;  // each exchange has its place
    for (const std::size_t lane : members) contenders_[lane].pool = pools_.size();
    pools_.push_back({most});
  }
}

void Places::hand_over(std::size_t lane) {
  Contender& contender = contenders_[lane];
  if (contender.pool != no_pool) contender.order.push_back(pools_[contender.pool].handed++);
}

bool Places::enter(std::size_t lane) {
  Contender& contender = contenders_[lane];
  if (contender.pool == no_pool || contender.inside) return true;
  Pool& pool = pools_[contender.pool];
  if (pool.begun != contender.order.front() || pool.inside == pool.most) return false;
  ++pool.begun;
  ++pool.inside;
  lanes_.wake_rank(lanes_[lane].rank);
  return contender.inside = true;
}

void Places::leave(std::size_t lane) {
  Contender& contender = contenders_[lane];
  if (contender.pool == no_pool) return;
  --pools_[contender.pool].inside;
  contender.inside = false;
  contender.order.pop_front();
  lanes_.wake_rank(lanes_[lane].rank);
}

}  // namespace prun
