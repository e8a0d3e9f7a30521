#include "plan/proof/lanes.hpp"

#include "plan/call_text.hpp"

namespace prun {

Lanes::Lanes(const RankClasses& ranks, std::int64_t steps) : ranks_(ranks), steps_(steps), rounds_(steps) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) {
    const Plan& plan = *ranks.first(rank).plan;
    if (plan.overlaps) rounds_ = std::max(rounds_, steps + plan.depth());
    first_.push_back(lanes_.size());
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      lanes_.push_back({rank, static_cast<std::int32_t>(q), {}});
    for (const Call& call : plan.calls) {
      Lane& lane = lanes_[of(rank, call.queue)];
      lane.calls.push_back(&call);
    }
    for (const Call& call : plan.calls)
      if (call.behind > 0) {
        Lane& lane = lanes_[of(rank, call.queue)];
        const auto before = static_cast<std::size_t>(call.behind) - 1;
        lane.behind =
            std::max(lane.behind, before * lane.calls.size() + static_cast<std::size_t>(call.position) + 1);
      }
  }
  first_.push_back(lanes_.size());
  is_awake_.resize(lanes_.size());
}

std::string Lanes::text_of(const Lane& lane) const {
  const SimulatedRank& rank = rank_of(lane);
  return detail::concat("rank ", rank.rank, ", queue ", info_of(lane).name, ", call ", lane.call().position,
                        " (", call_name(*rank.program, *rank.plan, lane.call()), ")");
}

void Lanes::wake(std::size_t lane) {
  if (is_awake_[lane]) return;
  is_awake_[lane] = true;
  awake_.push_back(lane);
}

void Lanes::wake_rank(std::size_t rank) {
  for (std::size_t lane = first_[rank]; lane < first_[rank + 1]; ++lane) wake(lane);
}

void Lanes::wake_all() {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) wake(lane);
}

std::optional<std::size_t> Lanes::next_awake() {
  if (awake_.empty()) return {};
  const std::size_t lane = awake_.front();
  awake_.pop_front();
  is_awake_[lane] = false;
  return lane;
}

}  // namespace prun
