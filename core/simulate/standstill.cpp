#include "simulate/standstill.hpp"

#include <algorithm>

#include "simulate/deadlock.hpp"

namespace prun {
namespace {

// Returns as many steps as run at a time.
std::int64_t steps_tried(const RankClasses& ranks) {
  std::int64_t steps = 2;
  for (std::size_t rank = 0; rank < ranks.count(); ++rank)
    steps = std::max<std::int64_t>(steps, ranks.first(rank).plan->running);
  return steps;
}

class LimitedRun {
 public:
  LimitedRun(std::span<const SimulatedRank> ranks, const Limits& limits)
      : ranks_(ranks),
        lanes_(ranks_, steps_tried(ranks_)),
        channels_(ranks_, lanes_),
        feeders_(ranks_, lanes_, limits) {}

  std::optional<std::string> run() {
    for (std::size_t rank = 0; rank < ranks_.count(); ++rank) feeders_.feed(rank);
    lanes_.wake_all();
    while (const std::optional<std::size_t> lane = lanes_.next_awake()) work(*lane);
    if (std::none_of(lanes_.begin(), lanes_.end(),
                     [&](const Lane& lane) { return lanes_.is_unfinished(lane); }))
      return {};
    return deadlock_text(ranks_, lanes_, channels_, &feeders_);
  }

 private:
  void work(std::size_t number) {
    Lane& lane = lanes_[number];
    bool moved = false;
    while (lanes_.is_unfinished(lane) && carry_out(lane, number)) {
      lane.end_call();
      moved = true;
    }
    if (moved) lanes_.wake_rank(lane.rank);
  }

  // Carries the lane's call out; says whether it is over.
  bool carry_out(Lane& lane, std::size_t number) {
    if (feeders_.feeds(number)) return carry_out_pieces(lane, number);
    return waits_are_over(lane) && pass_exchanges(lane, number, exchanges_of(lane));
  }

  bool carry_out_pieces(Lane& lane, std::size_t number) {
    while (const FedPiece* const piece = feeders_.next_piece(number)) {
      if (feeders_.is_empty(number)) return false;
      const bool waits = piece->kind == FedPiece::Kind::wait,
                 exchanges = piece->kind == FedPiece::Kind::exchanges;
      if (waits && !lanes_.is_over(lane, lane.call().waits[piece->number])) return false;
      if (exchanges && !pass_in_place(lane, number, piece->number)) return false;
      feeders_.pass_piece(number);
    }
    return true;
  }

  // Passes exchanges that have a place one after the other, so many at a time.
  bool pass_in_place(Lane& lane, std::size_t number, std::size_t until) {
    if (!feeders_.places().enter(number) || !pass_exchanges(lane, number, until)) return false;
    feeders_.places().leave(number);
    return true;
  }

  std::size_t exchanges_of(const Lane& lane) const {
    return lanes_.group_of(lane) ? lanes_.rank_of(lane).plan->steps(lane.call()).size() : 0;
  }

  bool waits_are_over(const Lane& lane) const {
    const std::vector<Wait>& waits = lane.call().waits;
    return std::all_of(waits.begin(), waits.end(),
                       [&](const Wait& wait) { return lanes_.is_over(lane, wait); });
  }

  // Passes the exchanges of its call up to this one.
  bool pass_exchanges(Lane& lane, std::size_t number, std::size_t until) {
    if (!lanes_.runs(lane)) return true;
    const std::span<const PlannedStep> steps = lanes_.rank_of(lane).plan->steps(lane.call());
    for (; lane.exchange < until; ++lane.exchange) {
      const std::optional<PlannedExchange>& exchange = steps[lane.exchange].exchange;
      PRUN_CHECK(exchange, "a kernel on a queue that communicates");
      double now = 0;
      if (!channels_.meet(number, *exchange, now, [](const Channels::Company&) { return 0.0; })) return false;
    }
    return true;
  }

  const RankClasses ranks_;
  Lanes lanes_;
  Channels channels_;
  Feeders feeders_;
};

}  // namespace

std::optional<std::string> standstill(std::span<const SimulatedRank> ranks, const Limits& limits) {
  PRUN_CHECK(!ranks.empty(), "no ranks");
  return LimitedRun(ranks, limits).run();
}

}  // namespace prun
