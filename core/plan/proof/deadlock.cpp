#include "plan/proof/deadlock.hpp"

#include "plan/call_text.hpp"

namespace prun {
namespace {

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
std::string reason(const Lanes& lanes, const Channels& channels, const Feeders* feeders, std::size_t number) {
  if (channels.waits(number)) return ranks_missing(channels.missing_at(number));
  if (feeders && feeders->feeds(number) && feeders->is_at_exchanges(number) &&
      feeders->places().compete(number))
    return place_missing(feeders->places(), number);
  const Lane& lane = lanes[number];
  for (const Wait& wait : lane.call().waits)
    if (!lanes.is_over(lane, wait)) return call_missing(lanes, lane, wait);
  return "waits for an earlier step to end";
}

std::string text_of_feeder(const SimulatedRank& rank, const Lanes& lanes, const Feeders& feeders,
                           const Feeders::Held& held) {
  return detail::concat("\n  rank ", rank.rank, ", the feeder, holds call ", held.call->position, " (",
                        call_name(*rank.program, *rank.plan, *held.call), ") for queue ",
                        lanes.info_of(lanes[held.lane]).name, ", which is full with ",
                        feeders.limits_of(held.lane).depth);
}

}  // namespace

std::string deadlock_text(const RankClasses& ranks, const Lanes& lanes, const Channels& channels,
                          const Feeders* feeders) {
  std::string text = "the plan cannot be carried out; these wait for each other:";
  int named = 0, left = 0;
  for (std::size_t rank = 0; feeders && rank < ranks.count() && named < most_named / 2; ++rank)
    if (const auto held = feeders->held(rank)) {
      ++named;
      text += text_of_feeder(ranks.first(rank), lanes, *feeders, *held);
    }
  for (std::size_t number = 0; number < lanes.count(); ++number) {
    const Lane& lane = lanes[number];
    if (!lanes.is_unfinished(lane)) continue;
    if (feeders && feeders->feeds(number) && feeders->is_empty(number)) continue;
    if (named == most_named) {
      ++left;
      continue;
    }
    ++named;
    text += detail::concat("\n  ", lanes.text_of(lane), " of step ", lane.step(), " ",
                           reason(lanes, channels, feeders, number));
  }
  if (left) text += detail::concat("\n  and ", left, " more");
  return text;
}

}  // namespace prun
