#include "plan/proof/deadlock.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "plan/plan.hpp"
#include "plan/proof/lanes.hpp"

namespace prun {

// ------------------------------------------------------------------- submitters

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

Submitters::Submitters(const RankClasses& ranks, Lanes& lanes, const Limits& limits)
    : lanes_(lanes),
      stamps_(limits.stamps),
      submitted_(lanes.count()),
      places_(lanes, limits_by_lane(limits)) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) make_submitter(*ranks.first(rank).plan, rank);
}

std::vector<QueueLimits> Submitters::limits_by_lane(const Limits& limits) {
  std::vector<QueueLimits> by_lane;
  for (std::size_t lane = 0; lane < lanes_.count(); ++lane) {
    submitted_[lane].limits = limits.of(lanes_.info_of(lanes_[lane]));
    by_lane.push_back(submitted_[lane].limits);
  }
  return by_lane;
}

void Submitters::make_submitter(const Plan& plan, std::size_t rank) {
  Numbered<bool> asynchronous;
  for (std::size_t q = 0; q < plan.queues.size(); ++q)
    asynchronous.push_back(submits(lanes_.of(rank, static_cast<std::int32_t>(q))));
  Numbered<Numbered<bool>>& events = by_event_[&plan];
  events.clear();
  for (const QueueInfo& queue : plan.queues) events.emplace_back(queue.calls);
  for (const Call& call : plan.calls)
    for (const Wait& wait : call.waits)
      if (asynchronous[call.queue] && asynchronous[wait.queue]) events[wait.queue][wait.call] = true;
  Submitter& submitter = submitters_.emplace_back();
  for (const Call& call : plan.calls)
    if (asynchronous[call.queue]) submitter.calls.push_back(&call);
}

// Writes the script of a watched run, in which every call writes its counter, in a step whose exposed
// communication is measured.
void Submitters::write_script(std::size_t lane, const Call& call, std::int64_t step,
                              std::vector<SubmittedPiece>& pieces) const {
  const Plan& plan = plan_of(lane);
  SubmittedCall submitted{.one_by_one = stamps_, .stamps = stamps_, .edges = true, .counter = true};
  submitted.event = by_event_.at(&plan)[call.queue][call.position];
  (plan.queues[call.queue].communicates() ? submitted.exchanges : submitted.works) = plan.steps(call).size();
  submission_script(plan, call, step, submitted, pieces);
}

void Submitters::submit(std::size_t rank) {
  Submitter& submitter = submitters_[rank];
  auto& [pieces, piece] = submitter.progress;
  while (const std::optional<Held> next = held(rank)) {
    Submitted& submitted = submitted_[next->lane];
    if (piece == 0) write_script(next->lane, *next->call, submitter.step(), pieces);
    for (; piece < pieces.size(); ++piece) {
      if (submitted.is_full()) return;
      if (pieces[piece].kind == SubmittedPiece::Kind::exchanges) places_.hand_over(next->lane);
      ++submitted.handed;
      lanes_.wake(next->lane);
    }
    piece = 0;
    ++submitter.next;
  }
}

std::optional<Submitters::Held> Submitters::held(std::size_t rank) const {
  const Submitter& submitter = submitters_[rank];
  if (submitter.calls.empty() || submitter.step() == lanes_.iterations()) return {};
  const Call* const call = submitter.calls[submitter.next % submitter.calls.size()];
  return Held{call, lanes_.of(rank, call->queue)};
}

const SubmittedPiece* Submitters::next_piece(std::size_t lane) {
  auto& [pieces, piece] = submitted_[lane].progress;
  if (piece == 0) write_script(lane, lanes_[lane].call(), lanes_[lane].step(), pieces);
  if (piece < pieces.size()) return &pieces[piece];
  piece = 0;
  return nullptr;
}

void Submitters::pass_piece(std::size_t lane) {
  ++submitted_[lane].passed;
  ++submitted_[lane].progress.piece;
  submit(lanes_[lane].rank);
}

bool Submitters::is_at_exchanges(std::size_t lane) const {
  const auto& [pieces, piece] = submitted_[lane].progress;
  return pieces[piece].kind == SubmittedPiece::Kind::exchanges;
}

namespace {

// ------------------------------------------------------------------- deadlock

constexpr int most_named = 8;

std::string ranks_missing(const std::vector<int>& missing) {
  std::string text;
  for (const int rank : missing) text += detail::concat(text.empty() ? "waits for rank " : ", ", rank);
  return text;
}

std::string place_missing(const Places& places, std::size_t lane) {
  if (places.all_taken(lane))
    return detail::concat("waits for one of the ", places.most(lane), " exchanges under way to end");
  return "waits for the exchange before it in the plan to begin";
}

std::string call_missing(const Lanes& lanes, const Lane& lane, const Wait& wait) {
  const Lane& other = lanes[lanes.of(lane.rank, wait.queue)];
  if (static_cast<std::size_t>(wait.call) >= other.calls.size())
    return "waits for a call that its queue does not have";
  const SimulatedRank& rank = lanes.rank_of(lane);
  const Call& call = *other.calls[wait.call];
  return detail::concat("waits for queue ", lanes.info_of(other).name, ", call ", wait.call, " (",
                        call_name(*rank.program, *rank.plan, call), ")");
}

// Returns why an unfinished lane cannot proceed.
std::string reason(const Lanes& lanes, const Channels& channels, const Submitters* submitters,
                   std::size_t number) {
  if (channels.waits(number)) return ranks_missing(channels.missing_at(number));
  if (submitters && submitters->submits(number) && submitters->is_at_exchanges(number) &&
      submitters->places().compete(number))
    return place_missing(submitters->places(), number);
  const Lane& lane = lanes[number];
  for (const Wait& wait : lane.call().waits)
    if (!lanes.is_over(lane, wait)) return call_missing(lanes, lane, wait);
  return "waits for an earlier step to end";
}

std::string text_of_submitter(const SimulatedRank& rank, const Lanes& lanes, const Submitters& submitters,
                              const Submitters::Held& held) {
  return detail::concat("\n  rank ", rank.rank, ", the submitter, holds call ", held.call->position, " (",
                        call_name(*rank.program, *rank.plan, *held.call), ") for queue ",
                        lanes.info_of(lanes[held.lane]).name, ", which is full with ",
                        submitters.limits_of(held.lane).depth);
}

}  // namespace

std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Submitters* submitters) {
  std::string text = "the plan cannot be carried out; these wait for each other:";
  int named = 0, left = 0;
  for (std::size_t rank = 0; submitters && rank < ranks.count() && named < most_named / 2; ++rank)
    if (const auto held = submitters->held(rank)) {
      ++named;
      text += text_of_submitter(ranks.first(rank), lanes, *submitters, *held);
    }
  for (std::size_t number = 0; number < lanes.count(); ++number) {
    const Lane& lane = lanes[number];
    if (!lanes.is_unfinished(lane)) continue;
    if (submitters && submitters->submits(number) && submitters->is_empty(number)) continue;
    if (named == most_named) {
      ++left;
      continue;
    }
    ++named;
    text += detail::concat("\n  ", lanes.text_of(lane), " of step ", lane.step(), " ",
                           reason(lanes, channels, submitters, number));
  }
  if (left) text += detail::concat("\n  and ", left, " more");
  return text;
}

namespace {

// ------------------------------------------------------------------- deadlock check

// ------------------------------------------------------------ deadlock

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
        submitters_(ranks_, lanes_, limits) {}

  std::optional<std::string> run() {
    for (std::size_t rank = 0; rank < ranks_.count(); ++rank) submitters_.submit(rank);
    lanes_.wake_all();
    while (const std::optional<std::size_t> lane = lanes_.next_awake()) work(*lane);
    if (std::none_of(lanes_.begin(), lanes_.end(),
                     [&](const Lane& lane) { return lanes_.is_unfinished(lane); }))
      return {};
    return deadlock_text(ranks_, lanes_, channels_, &submitters_);
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
    if (submitters_.submits(number)) return carry_out_pieces(lane, number);
    return waits_are_over(lane) && pass_exchanges(lane, number, exchanges_of(lane));
  }

  bool carry_out_pieces(Lane& lane, std::size_t number) {
    while (const SubmittedPiece* const piece = submitters_.next_piece(number)) {
      if (submitters_.is_empty(number)) return false;
      const bool waits = piece->kind == SubmittedPiece::Kind::wait,
                 exchanges = piece->kind == SubmittedPiece::Kind::exchanges;
      if (waits && !lanes_.is_over(lane, lane.call().waits[piece->number])) return false;
      if (exchanges && !pass_in_place(lane, number, piece->number)) return false;
      submitters_.pass_piece(number);
    }
    return true;
  }

  // Runs collectives that have a place, up to `until`.
  bool pass_in_place(Lane& lane, std::size_t number, std::size_t until) {
    if (!submitters_.places().enter(number) || !pass_exchanges(lane, number, until)) return false;
    submitters_.places().leave(number);
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
      if (!channels_.meet(number, *exchange, now, [](const Channels::Participants&) { return 0.0; }))
        return false;
    }
    return true;
  }

  const RankClasses ranks_;
  Lanes lanes_;
  Channels channels_;
  Submitters submitters_;
};

// Describes the deadlock of two steps; nothing if there is none.
std::optional<std::string> deadlock_of(std::span<const SimulatedRank> ranks, const Limits& limits) {
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

  std::optional<std::string> stuck() const { return deadlock_of(ranks_, limits_); }
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
    return !deadlock_of(ranks_, {limits_of, limits_.stamps});
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

void check_no_deadlock(std::span<const SimulatedRank> ranks, const Limits& limits) {
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
