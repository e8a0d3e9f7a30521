#include "sim/simulate.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "sim/trace.hpp"

namespace prun {
namespace {

// One queue of a simulated rank.
struct Lane {
  std::size_t rank = 0;  // among those that are simulated
  std::int32_t queue = 0;
  std::vector<const Call*> calls;
  std::vector<double> done;  // by ticket: when

  // The call under way.
  bool begun = false;
  double begin = 0, now = 0;
  std::size_t exchange = 0;
  bool arrived = false;
  std::map<std::size_t, std::size_t> met;  // by channel: exchanges behind it

  std::int64_t step() const { return static_cast<std::int64_t>(done.size() / calls.size()); }
  const Call& call() const { return *calls[done.size() % calls.size()]; }
};

// An exchange that some have reached.
struct Meeting {
  const PlannedExchange* exchange = nullptr;
  std::vector<std::size_t> lanes;  // that are there
  double latest = 0;
  double end = -1;  // known once all are there
};

// Where the same ranks meet again and again.
struct Channel {
  std::vector<int> classes;  // who takes part, each once
  std::int64_t members = 0;
  std::vector<Meeting> meetings;
};

class Simulator {
 public:
  Simulator(std::span<const SimulatedRank> ranks, Prices& prices, const SimulateOptions& options)
      : ranks_(ranks), prices_(prices), overheads_(prices.overheads()), options_(options) {
    choose_ranks();
    for (std::size_t r = 0; r < result_.ranks.size(); ++r) make_lanes(r);
  }

  Simulation run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) wake(lane);
    while (!ready_.empty()) {
      const std::size_t lane = ready_.front();
      ready_.pop_front();
      waiting_[lane] = false;
      work(lane);
    }
    for (const Lane& lane : lanes_)
      if (unfinished(lane)) report_deadlock();
    finish();
    return std::move(result_);
  }

 private:
  // ------------------------------------------------------------- who is simulated

  void choose_ranks() {
    classes_ = tell_apart(ranks_);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      index_[ranks_[i].rank] = i;
      const auto number = static_cast<std::size_t>(classes_[i]);
      if (number == result_.ranks.size()) result_.ranks.push_back({ranks_[i].rank, 0, ranks_[i], {}, {}});
      ++result_.ranks[number].alike;
    }
  }

  void make_lanes(std::size_t rank) {
    const Plan& plan = *result_.ranks[rank].simulated.plan;
    first_lane_.push_back(lanes_.size());
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      Lane& lane = lanes_.emplace_back();
      lane.rank = rank;
      lane.queue = static_cast<std::int32_t>(q);
    }
    for (const Call& call : plan.calls) lane_of(rank, call.queue).calls.push_back(&call);
    waiting_.resize(lanes_.size());
  }

  Lane& lane_of(std::size_t rank, std::int32_t queue) {
    return lanes_[first_lane_[rank] + static_cast<std::size_t>(queue)];
  }
  const SimulatedRank& rank_of(const Lane& lane) const { return result_.ranks[lane.rank].simulated; }
  const std::string& name_of(const Lane& lane) const {
    return rank_of(lane).plan->queues[static_cast<std::size_t>(lane.queue)].name;
  }
  const Group& group_of(const Lane& lane) const {
    return rank_of(lane).groups[static_cast<std::size_t>(lane.queue)];
  }
  bool unfinished(const Lane& lane) const { return !lane.calls.empty() && lane.step() < options_.steps; }

  // ------------------------------------------------------------- going on

  void wake(std::size_t lane) {
    if (waiting_[lane]) return;
    waiting_[lane] = true;
    ready_.push_back(lane);
  }

  void work(std::size_t index) {
    Lane& lane = lanes_[index];
    bool moved = false;
    while (unfinished(lane) && begin_call(lane) && run_call(lane, index)) {
      finish_call(lane);
      moved = true;
    }
    if (!moved) return;
    const std::size_t queues = rank_of(lane).plan->queues.size();
    for (std::size_t q = 0; q < queues; ++q) wake(first_lane_[lane.rank] + q);
  }

  // When the host lets a step begin, or nothing yet.
  std::optional<double> started(const Lane& lane) {
    if (lane.step() < options_.running) return 0;
    const auto done = static_cast<std::size_t>(lane.step() - options_.running + 1);  // steps
    double latest = 0;
    for (std::size_t q = 0; q < rank_of(lane).plan->queues.size(); ++q) {
      const Lane& other = lanes_[first_lane_[lane.rank] + q];
      if (other.calls.empty()) continue;
      if (other.done.size() < done * other.calls.size()) return {};
      latest = std::max(latest, other.done[done * other.calls.size() - 1]);
    }
    return latest;
  }

  // Whether all that the next call waits for is done; then its waits are over.
  bool begin_call(Lane& lane) {
    if (lane.begun) return true;
    const std::optional<double> start = started(lane);
    if (!start) return false;
    const Call& call = lane.call();
    for (const Wait& wait : call.waits)
      if (awaited(lane, wait) == nullptr) return false;
    double now = std::max(*start, lane.now);
    for (const Wait& wait : call.waits) {
      const double done = *awaited(lane, wait);
      if (done <= now) continue;
      const double resumed = done + overheads_.handoff;
      events_of(lane).push_back({lane.queue, call.position, wait.queue, lane.step(), now, resumed});
      now = resumed;
    }
    lane.begin = lane.now = now;
    lane.begun = true;
    return true;
  }

  // When it was done; null: it is not. What lies before the first step has always been.
  const double* awaited(const Lane& lane, const Wait& wait) {
    static constexpr double long_ago = 0;
    const std::int64_t step = lane.step() - wait.steps_ago;
    if (step < 0) return &long_ago;
    const Lane& other = lane_of(lane.rank, wait.queue);
    const auto ticket =
        static_cast<std::size_t>(step) * other.calls.size() + static_cast<std::size_t>(wait.call);
    return ticket < other.done.size() ? &other.done[ticket] : nullptr;
  }

  bool run_call(Lane& lane, std::size_t index) {
    if (!group_of(lane)) {
      lane.now = lane.begin + compute_seconds(lane);
      return true;
    }
    const std::span<const PlannedStep> steps = rank_of(lane).plan->steps(lane.call());
    while (lane.exchange < steps.size()) {
      PRUN_CHECK(steps[lane.exchange].exchange, "a kernel on a queue that communicates");
      if (!meet(lane, index, *steps[lane.exchange].exchange)) return false;
      ++lane.exchange;
    }
    lane.now += overheads_.call;
    return true;
  }

  void finish_call(Lane& lane) {
    events_of(lane).push_back({lane.queue, lane.call().position, -1, lane.step(), lane.begin, lane.now});
    lane.done.push_back(lane.now);
    lane.begun = false;
    lane.exchange = 0;
  }

  std::vector<Event>& events_of(const Lane& lane) { return result_.ranks[lane.rank].events; }

  // The same for every instance and microbatch.
  double compute_seconds(const Lane& lane) {
    const SimulatedRank& rank = rank_of(lane);
    const Call& call = lane.call();
    const auto [entry, fresh] = seconds_.try_emplace({rank.plan, call.function, call.piece}, overheads_.call);
    if (fresh)
      for (const PlannedStep& step : rank.plan->steps(call))
        entry->second += prices_.kernel(*rank.program, step);
    return entry->second;
  }

  // ------------------------------------------------------------- meeting others

  // Whether the exchange is over for this lane.
  bool meet(Lane& lane, std::size_t index, const PlannedExchange& exchange) {
    const std::size_t number = channel_of(lane, exchange);
    Channel& channel = channels_[number];
    std::size_t& met = lane.met[number];
    if (channel.meetings.size() <= met) channel.meetings.resize(met + 1);
    Meeting& meeting = channel.meetings[met];
    if (!lane.arrived) arrive(lane, index, channel, meeting, exchange);
    if (meeting.end < 0) return false;
    lane.now = meeting.end;
    lane.arrived = false;
    ++met;
    return true;
  }

  void arrive(Lane& lane, std::size_t index, Channel& channel, Meeting& meeting,
              const PlannedExchange& exchange) {
    if (!meeting.exchange)
      meeting.exchange = &exchange;
    else
      check_same(lanes_[meeting.lanes.front()], *meeting.exchange, lane, exchange);
    meeting.lanes.push_back(index);
    meeting.latest = std::max(meeting.latest, lane.now);
    lane.arrived = true;
    if (meeting.lanes.size() < channel.classes.size()) return;
    const std::string& queue = name_of(lane);
    meeting.end = meeting.latest + prices_.exchange(exchange, channel.members, queue);
    if (channel.classes.size() == 1) meeting.end += prices_.lateness(exchange, channel.members, queue);
    for (std::size_t other : meeting.lanes)
      if (other != index) wake(other);
  }

  static bool between_two(const PlannedExchange& exchange) {
    return exchange.kind == CommKind::send || exchange.kind == CommKind::recv;
  }

  void check_same(const Lane& a, const PlannedExchange& x, const Lane& b, const PlannedExchange& y) const {
    const bool kinds = between_two(x) ? x.kind != y.kind : x.kind == y.kind;
    if (kinds && x.count * size_of(x.dtype) == y.count * size_of(y.dtype)) return;
    throw_error(ErrorCode::comm_failed, "the plans do not fit together: ", text_of(a), " meets ", text_of(b));
  }

  // Of whom the exchange is among: between two, each direction has its own.
  std::size_t channel_of(const Lane& lane, const PlannedExchange& exchange) {
    const std::vector<int>& group = *group_of(lane);
    int from = -1, to = -1;
    if (between_two(exchange)) {
      const int own =
          static_cast<int>(std::find(group.begin(), group.end(), rank_of(lane).rank) - group.begin());
      PRUN_CHECK(exchange.peer >= 0 && exchange.peer < static_cast<int>(group.size()) && exchange.peer != own,
                 text_of(lane), " has peer ", exchange.peer);
      from = exchange.kind == CommKind::send ? own : exchange.peer;
      to = exchange.kind == CommKind::send ? exchange.peer : own;
    }
    const std::size_t company = company_of(group);
    const auto [entry, fresh] =
        channel_numbers_.try_emplace({name_of(lane), company, from, to}, channels_.size());
    if (fresh) channels_.push_back(make_channel(group, from, to));
    return entry->second;
  }

  Channel make_channel(const std::vector<int>& group, int from, int to) const {
    Channel channel;
    channel.members = static_cast<std::int64_t>(group.size());
    for (std::size_t i = 0; i < group.size(); ++i)
      if (from < 0 || static_cast<int>(i) == from || static_cast<int>(i) == to)
        channel.classes.push_back(classes_[index_.at(group[i])]);
    std::sort(channel.classes.begin(), channel.classes.end());
    channel.classes.erase(std::unique(channel.classes.begin(), channel.classes.end()), channel.classes.end());
    return channel;
  }

  // Groups whose members are alike, one by one, are the same group as far as times go.
  std::size_t company_of(const std::vector<int>& group) {
    const auto [known, fresh] = company_by_group_.try_emplace(&group, 0);
    if (!fresh) return known->second;
    std::vector<int> classes;
    for (int rank : group) classes.push_back(classes_[index_.at(rank)]);
    known->second = companies_.try_emplace(std::move(classes), companies_.size()).first->second;
    return known->second;
  }

  // ------------------------------------------------------------- the end

  void finish() {
    std::vector<double> ends(static_cast<std::size_t>(options_.steps), 0);
    for (const Lane& lane : lanes_)
      for (std::size_t step = 0; step < ends.size() && !lane.calls.empty(); ++step)
        ends[step] = std::max(ends[step], lane.done[(step + 1) * lane.calls.size() - 1]);
    result_.step_seconds = ends.back() - (ends.size() > 1 ? ends[ends.size() - 2] : 0);
    for (RankTimes& rank : result_.ranks)
      rank.times = summarize(*rank.simulated.plan, rank.events, options_.steps - 1);
  }

  std::string text_of(const Lane& lane) const {
    const SimulatedRank& rank = rank_of(lane);
    return detail::concat("rank ", rank.rank, ", queue ", name_of(lane), ", call ", lane.call().position,
                          " (", call_name(*rank.program, *rank.plan, lane.call()), ")");
  }

  // What keeps an unfinished lane from going on.
  std::string reason(Lane& lane) {
    if (lane.arrived) return missing_at(lane);
    for (const Wait& wait : lane.call().waits)
      if (!awaited(lane, wait)) {
        const Lane& other = lane_of(lane.rank, wait.queue);
        if (static_cast<std::size_t>(wait.call) >= other.calls.size())
          return "waits for a call that its queue does not have";
        const Call& call = *other.calls[static_cast<std::size_t>(wait.call)];
        return detail::concat(
            "waits for queue ", rank_of(lane).plan->queues[static_cast<std::size_t>(wait.queue)].name,
            ", call ", wait.call, " (", call_name(*rank_of(lane).program, *rank_of(lane).plan, call), ")");
      }
    return "waits for an earlier step to end";
  }

  std::string missing_at(Lane& lane) {
    const PlannedExchange& exchange = *rank_of(lane).plan->steps(lane.call())[lane.exchange].exchange;
    const std::size_t number = channel_of(lane, exchange);
    const Channel& channel = channels_[number];
    std::string text;
    for (int missing : channel.classes) {
      const std::vector<std::size_t>& there = channel.meetings[lane.met[number]].lanes;
      const bool is_there = std::any_of(there.begin(), there.end(), [&](std::size_t other) {
        return lanes_[other].rank == static_cast<std::size_t>(missing);
      });
      if (!is_there)
        text += detail::concat(text.empty() ? "waits for rank " : ", ",
                               result_.ranks[static_cast<std::size_t>(missing)].rank);
    }
    return text;
  }

  [[noreturn]] void report_deadlock() {
    constexpr int most = 8;
    std::string text;
    int named = 0, left = 0;
    for (Lane& lane : lanes_) {
      if (!unfinished(lane)) continue;
      if (named == most) {
        ++left;
        continue;
      }
      ++named;
      text += detail::concat("\n  ", text_of(lane), " of step ", lane.step(), " ", reason(lane));
    }
    if (left) text += detail::concat("\n  and ", left, " more");
    throw_error(ErrorCode::hang, "the plan cannot be carried out; these wait for each other:", text);
  }

  std::span<const SimulatedRank> ranks_;
  Prices& prices_;
  Overheads overheads_;
  SimulateOptions options_;
  Simulation result_;  // its ranks: one a class, in the order of the classes
  std::vector<int> classes_;
  std::unordered_map<int, std::size_t> index_;  // of a rank, by its number
  std::vector<Lane> lanes_;
  std::vector<std::size_t> first_lane_;  // by simulated rank
  std::deque<std::size_t> ready_;
  std::vector<bool> waiting_;  // in ready_
  std::map<std::tuple<const Plan*, std::int32_t, std::int32_t>, double> seconds_;
  std::unordered_map<const std::vector<int>*, std::size_t> company_by_group_;
  std::map<std::vector<int>, std::size_t> companies_;
  std::map<std::tuple<std::string, std::size_t, int, int>, std::size_t> channel_numbers_;
  std::vector<Channel> channels_;
};

}  // namespace

double Simulation::exposed_communication() const {
  double most = 0;
  for (const RankTimes& rank : ranks) most = std::max(most, rank.times.exposed_communication);
  return most;
}

Simulation simulate(std::span<const SimulatedRank> ranks, Prices& prices, const SimulateOptions& options) {
  PRUN_CHECK(!ranks.empty() && options.steps > 0, ranks.size(), " ranks, ", options.steps, " steps");
  return Simulator(ranks, prices, options).run();
}

}  // namespace prun
