#include "plan/proof/ends.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "plan/proof/deadlock.hpp"
#include "plan/proof/queue_limits.hpp"
#include "plan/proof/simulated_rank.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ standstill

// Tests for deadlocks with limited queues and collectives. Times do not matter.

// Returns as many as may run at a time.
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

  // Runs the lane's call; true once it is over.
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

  // Runs collectives that have a place, up to `until`.
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

  // Runs the collectives of its call up to this one.
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

// Describes the deadlock of two steps; nothing if there is none.
std::optional<std::string> standstill(std::span<const SimulatedRank> ranks, const Limits& limits) {
  PRUN_CHECK(!ranks.empty(), "no ranks");
  return LimitedRun(ranks, limits).run();
}

// The smallest limits; 0: unlimited.
struct Least {
  std::int64_t depth = 0, resident = 0;
};

class Trial {
 public:
  Trial(std::span<const SimulatedRank> ranks, const Limits& limits) : ranks_(ranks), limits_(limits) {}

  std::optional<std::string> stuck() const { return standstill(ranks_, limits_); }
  // Returns true without deadlock if limits are at least these.
  bool ends_with(Least least) const {
    const auto raised = [](std::int64_t own, std::int64_t to) {
      return own == 0 || to == 0 ? 0 : std::max(own, to);
    };
    const auto limits_of = [&](const QueueInfo& queue) {
      QueueLimits limits = limits_.of(queue);
      limits.depth = raised(limits.depth, least.depth);
      limits.resident = raised(limits.resident, least.resident);
      return limits;
    };
    return !standstill(ranks_, {limits_of, limits_.stamps});
  }
  // Returns the smallest limits given.
  Least given() const {
    Least least;
    const auto take = [](std::int64_t& least_of, std::int64_t limit) {
      if (limit > 0) least_of = least_of > 0 ? std::min(least_of, limit) : limit;
    };
    for (const SimulatedRank& rank : ranks_)
      for (const QueueInfo& queue : rank.plan->queues) {
        const QueueLimits limits = limits_.of(queue);
        if (!limits.asynchronous) continue;
        take(least.depth, limits.depth);
        take(least.resident, limits.resident);
      }
    return least;
  }

 private:
  std::span<const SimulatedRank> ranks_;
  const Limits& limits_;
};

// Raises the number until it suffices. Larger numbers never do harm.
template <class Enough>
void raise_to_least(std::int64_t& number, Enough&& enough) {
  std::int64_t low = 0;
  while (!enough()) {
    low = number;
    number *= 2;
  }
  if (low == 0) return;  // it sufficed already
  for (std::int64_t high = number; high - low > 1;) {
    number = low + (high - low) / 2;
    (enough() ? high : low) = number;
    number = high;
  }
}

// Returns one limit, if that suffices; otherwise the least depth, with what else must be raised.
Least least_that_do(const Trial& trial, const Least& given) {
  Least least = given;
  const std::int64_t resident = trial.ends_with({0, given.resident}) ? given.resident : 0;
  if (!trial.ends_with({given.depth, 0}))
    raise_to_least(least.depth, [&] { return trial.ends_with({least.depth, resident}); });
  raise_to_least(least.resident, [&] { return trial.ends_with(least); });
  return least;
}

}  // namespace

void check_steps_end(std::span<const SimulatedRank> ranks, const Limits& limits) {
  const Trial trial(ranks, limits);
  const std::optional<std::string> why = trial.stuck();
  if (!why) return;
  if (!trial.ends_with({})) throw_error(ErrorCode::unsupported, *why);
  const Least given = trial.given(), least = least_that_do(trial, given);
  std::string missing;
  if (least.depth > given.depth)
    missing = detail::concat("the device's queues take ", given.depth, " pieces of work and must take ",
                             least.depth);
  if (least.resident > given.resident)
    missing += detail::concat(missing.empty() ? "" : ", ", "a rank may have ", given.resident,
                              " exchanges under way at a time and must have ", least.resident);
  throw_error(ErrorCode::unsupported, missing,
              ", or this layout stands still; take a device or comm plugin that allows it, or another "
              "schedule: ",
              *why);
}

}  // namespace prun
