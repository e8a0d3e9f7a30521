#include "plan/proof/feeders.hpp"

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
    if (static_cast<std::int64_t>(members.size()) <= most) continue;  // enough places for all
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

Feeders::Feeders(const RankClasses& ranks, Lanes& lanes, const Limits& limits)
    : lanes_(lanes), stamps_(limits.stamps), fed_(lanes.count()), places_(lanes, limits_by_lane(limits)) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) make_feeder(*ranks.first(rank).plan, rank);
}

// Returns limits by lane.
std::vector<QueueLimits> Feeders::limits_by_lane(const Limits& limits) {
  std::vector<QueueLimits> by_lane;
  for (std::size_t lane = 0; lane < lanes_.count(); ++lane) {
    fed_[lane].limits = limits.of(lanes_.info_of(lanes_[lane]));
    by_lane.push_back(fed_[lane].limits);
  }
  return by_lane;
}

void Feeders::make_feeder(const Plan& plan, std::size_t rank) {
  Numbered<bool> asynchronous;
  for (std::size_t q = 0; q < plan.queues.size(); ++q)
    asynchronous.push_back(feeds(lanes_.of(rank, static_cast<std::int32_t>(q))));
  Numbered<Numbered<bool>>& events = by_event_[&plan];
  events.clear();
  for (const QueueInfo& queue : plan.queues) events.emplace_back(queue.calls);
  for (const Call& call : plan.calls)
    for (const Wait& wait : call.waits)
      if (asynchronous[call.queue] && asynchronous[wait.queue]) events[wait.queue][wait.call] = true;
  Feeder& feeder = feeders_.emplace_back();
  for (const Call& call : plan.calls)
    if (asynchronous[call.queue]) feeder.calls.push_back(&call);
}

// Writes the script of a watched run, in which every call writes its counter, in a step whose exposed
// communication is measured.
void Feeders::write_script(std::size_t lane, const Call& call, std::int64_t step,
                           std::vector<FedPiece>& pieces) const {
  const Plan& plan = plan_of(lane);
  FedCall fed{.one_by_one = stamps_, .stamps = stamps_, .edges = true, .counter = true};
  fed.event = by_event_.at(&plan)[call.queue][call.position];
  (plan.queues[call.queue].communicates() ? fed.exchanges : fed.works) = plan.steps(call).size();
  feed_script(plan, call, step, fed, pieces);
}

void Feeders::feed(std::size_t rank) {
  Feeder& feeder = feeders_[rank];
  auto& [pieces, piece] = feeder.progress;
  while (const std::optional<Held> next = held(rank)) {
    Fed& fed = fed_[next->lane];
    if (piece == 0) write_script(next->lane, *next->call, feeder.step(), pieces);
    for (; piece < pieces.size(); ++piece) {
      if (fed.is_full()) return;
      if (pieces[piece].kind == FedPiece::Kind::exchanges) places_.hand_over(next->lane);
      ++fed.handed;
      lanes_.wake(next->lane);
    }
    piece = 0;
    ++feeder.next;
  }
}

std::optional<Feeders::Held> Feeders::held(std::size_t rank) const {
  const Feeder& feeder = feeders_[rank];
  if (feeder.calls.empty() || feeder.step() == lanes_.rounds()) return {};
  const Call* const call = feeder.calls[feeder.next % feeder.calls.size()];
  return Held{call, lanes_.of(rank, call->queue)};
}

const FedPiece* Feeders::next_piece(std::size_t lane) {
  auto& [pieces, piece] = fed_[lane].progress;
  if (piece == 0) write_script(lane, lanes_[lane].call(), lanes_[lane].step(), pieces);
  if (piece < pieces.size()) return &pieces[piece];
  piece = 0;
  return nullptr;
}

void Feeders::pass_piece(std::size_t lane) {
  ++fed_[lane].passed;
  ++fed_[lane].progress.piece;
  feed(lanes_[lane].rank);
}

bool Feeders::is_at_exchanges(std::size_t lane) const {
  const auto& [pieces, piece] = fed_[lane].progress;
  return pieces[piece].kind == FedPiece::Kind::exchanges;
}

}  // namespace prun
