#include "simulate/simulate.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "simulate/pieces.hpp"
#include "simulate/sharing.hpp"
#include "simulate/trace.hpp"

namespace prun {
namespace {

constexpr std::size_t no_pool = static_cast<std::size_t>(-1), all_exchanges = no_pool;

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
  bool at_once = false;  // a call's exchanges are started together
  bool arrived = false;
  bool moving = false, moved = false;      // bytes beside others: under way, over
  std::map<std::size_t, std::size_t> met;  // by channel: exchanges behind it

  // Of an asynchronous one.
  QueueLimits limits;
  std::size_t pool = no_pool;
  std::deque<std::int64_t> tickets;     // of the exchanges handed over: their places in the pool's order
  bool inside = false;                  // the pool
  std::int64_t handed = 0, passed = 0;  // pieces
  std::vector<FedPiece> pieces;         // of the call under way
  std::size_t piece = 0;

  std::int64_t step() const { return static_cast<std::int64_t>(done.size() / calls.size()); }
  const Call& call() const { return *calls[done.size() % calls.size()]; }
};

// Fills the asynchronous queues of a rank in the plan's order.
struct Feeder {
  std::vector<const Call*> calls;
  std::size_t next = 0;          // of all steps
  std::vector<FedPiece> pieces;  // of the next call
  std::size_t piece = 0;
};

// What exchanges of a rank compete for.
struct Pool {
  std::int64_t handed = 0, begun = 0, inside = 0, most = 0;
};

// What a call takes alone, and the bytes that it moves.
struct CallCost {
  double seconds = 0, host_bytes = 0;
  std::map<std::int32_t, double> links;  // bytes by link
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
      : ranks_(ranks),
        prices_(prices),
        overheads_(prices.overheads()),
        options_(options),
        pieces_(options.stamps) {
    choose_ranks();
    for (std::size_t r = 0; r < result_.ranks.size(); ++r) make_lanes(r);
    if (options_.limits)
      for (std::size_t r = 0; r < result_.ranks.size(); ++r) make_feeder(r);
    else
      make_carriers();
  }

  Simulation run() {
    for (std::size_t rank = 0; rank < feeders_.size(); ++rank) feed(rank);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) wake(lane);
    do {
      while (!ready_.empty()) {
        const std::size_t lane = ready_.front();
        ready_.pop_front();
        waiting_[lane] = false;
        work(lane);
      }
    } while (end_next_move());
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
      lane.at_once = options_.at_once && options_.at_once(plan.queues[q]);
    }
    for (const Call& call : plan.calls) lane_of(rank, call.queue).calls.push_back(&call);
    waiting_.resize(lanes_.size());
  }

  void make_feeder(std::size_t rank) {
    const Plan& plan = *result_.ranks[rank].simulated.plan;
    std::vector<bool> asynchronous;
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      Lane& lane = lane_of(rank, static_cast<std::int32_t>(q));
      lane.limits = options_.limits(plan.queues[q]);
      asynchronous.push_back(lane.limits.asynchronous);
    }
    pieces_.add(plan, asynchronous);
    Feeder& feeder = feeders_.emplace_back();
    for (const Call& call : plan.calls)
      if (asynchronous[static_cast<std::size_t>(call.queue)]) feeder.calls.push_back(&call);
    make_pools(rank);
  }

  void make_pools(std::size_t rank) {
    std::map<std::string, std::pair<Pool, std::vector<Lane*>>> pools;
    for (std::size_t q = 0; q < result_.ranks[rank].simulated.plan->queues.size(); ++q) {
      Lane& lane = lane_of(rank, static_cast<std::int32_t>(q));
      if (!lane.limits.asynchronous || lane.limits.resident == 0 || !group_of(lane)) continue;
      auto& [pool, lanes] = pools[lane.limits.pool];
      pool.most = lane.limits.resident;
      lanes.push_back(&lane);
    }
    for (auto& [name, entry] : pools) {
      auto& [pool, lanes] = entry;
      if (static_cast<std::int64_t>(lanes.size()) <= pool.most) continue;  // each has its place
      for (Lane* lane : lanes) lane->pool = pools_.size();
      pools_.push_back(pool);
    }
  }

  // Links of each rank, as fast as the fastest call that uses them, and the memory of each host that a
  // simulated rank is on.
  void make_carriers() {
    for (std::size_t rank = 0; rank < result_.ranks.size(); ++rank) {
      std::map<std::int32_t, double> fastest;
      for (const Call& call : result_.ranks[rank].simulated.plan->calls) {
        if (group_of(lane_of(rank, call.queue))) continue;
        const CallCost& cost = cost_of(rank, call);
        result_.ranks[rank].host_bytes += cost.host_bytes;
        for (const auto& [link, bytes] : cost.links)
          if (cost.seconds > 0) fastest[link] = std::max(fastest[link], bytes / cost.seconds);
      }
      for (const auto& [link, rate] : fastest) links_[{rank, link}] = sharing_.add_carrier(rate);
    }
    const double bandwidth = prices_.host_bandwidth();
    if (bandwidth <= 0) return;
    for (const RankTimes& rank : result_.ranks) hosts_[host_of(rank.rank)];
    for (auto& [number, host] : hosts_) host.carrier = sharing_.add_carrier(bandwidth);
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (const auto host = hosts_.find(host_of(ranks_[i].rank)); host != hosts_.end())
        ++host->second.alike[static_cast<std::size_t>(classes_[i])];
  }

  std::int64_t host_of(int rank) const {
    return options_.ranks_of_host > 0 ? rank / options_.ranks_of_host : 0;
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
    while (unfinished(lane) && carry_out(lane, index)) {
      finish_call(lane);
      moved = true;
    }
    if (!moved) return;
    wake_rank(lane.rank);
  }

  // Whether the call is over.
  bool carry_out(Lane& lane, std::size_t index) {
    if (!lane.limits.asynchronous) return begin_call(lane) && run_call(lane, index, all_exchanges);
    if (lane.piece == 0) lane.pieces = pieces_.of(*rank_of(lane).plan, lane.call(), lane.step());
    for (; lane.piece < lane.pieces.size(); ++lane.piece) {
      if (lane.handed == lane.passed) return false;
      const FedPiece& piece = lane.pieces[lane.piece];
      if (piece.wait && !awaited(lane, *piece.wait)) return false;
      if (piece.exchanges && !pass_exchanges(lane, index, piece.exchanges)) return false;
      ++lane.passed;
      feed(lane.rank);
    }
    lane.piece = 0;
    return begin_call(lane) && run_call(lane, index, all_exchanges);
  }

  bool pass_exchanges(Lane& lane, std::size_t index, std::size_t until) {
    if (!begin_call(lane) || !enter_pool(lane) || !run_call(lane, index, until)) return false;
    if (lane.pool == no_pool) return true;
    --pools_[lane.pool].inside;
    lane.inside = false;
    lane.tickets.pop_front();
    wake_rank(lane.rank);
    return true;
  }

  // One after the other, so many at a time.
  bool enter_pool(Lane& lane) {
    if (lane.pool == no_pool || lane.inside) return true;
    Pool& pool = pools_[lane.pool];
    if (pool.begun != lane.tickets.front() || pool.inside == pool.most) return false;
    ++pool.begun;
    ++pool.inside;
    wake_rank(lane.rank);
    return lane.inside = true;
  }

  void wake_rank(std::size_t rank) {
    for (std::size_t q = 0; q < result_.ranks[rank].simulated.plan->queues.size(); ++q)
      wake(first_lane_[rank] + q);
  }

  // ------------------------------------------------------------- feeding

  // Goes on for as long as the next queue has room.
  void feed(std::size_t rank) {
    Feeder& feeder = feeders_[rank];
    while (Lane* const lane = fed_next(rank)) {
      const Call& call = *feeder.calls[feeder.next % feeder.calls.size()];
      if (feeder.piece == 0) feeder.pieces = pieces_.of(*rank_of(*lane).plan, call, step_of(feeder));
      for (; feeder.piece < feeder.pieces.size(); ++feeder.piece) {
        if (is_full(*lane)) return;
        if (feeder.pieces[feeder.piece].exchanges && lane->pool != no_pool)
          lane->tickets.push_back(pools_[lane->pool].handed++);
        ++lane->handed;
        wake(static_cast<std::size_t>(lane - lanes_.data()));
      }
      feeder.piece = 0;
      ++feeder.next;
    }
  }

  // Null: it has handed over all there is.
  Lane* fed_next(std::size_t rank) {
    Feeder& feeder = feeders_[rank];
    if (feeder.calls.empty() || step_of(feeder) == options_.steps) return nullptr;
    return &lane_of(rank, feeder.calls[feeder.next % feeder.calls.size()]->queue);
  }

  static std::int64_t step_of(const Feeder& feeder) {
    return static_cast<std::int64_t>(feeder.next / feeder.calls.size());
  }
  static bool is_full(const Lane& lane) {
    return lane.limits.depth > 0 && lane.handed - lane.passed == lane.limits.depth;
  }

  // When the host lets a step begin, or nothing yet.
  std::optional<double> started(const Lane& lane) {
    if (options_.limits || lane.step() < options_.running) return 0;
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

  // Of its exchanges, so many.
  bool run_call(Lane& lane, std::size_t index, std::size_t until) {
    if (!group_of(lane)) return compute(lane, index);
    const std::span<const PlannedStep> steps = rank_of(lane).plan->steps(lane.call());
    while (lane.exchange < std::min(until, steps.size())) {
      PRUN_CHECK(steps[lane.exchange].exchange, "a kernel on a queue that communicates");
      if (!meet(lane, index, *steps[lane.exchange].exchange)) return false;
      ++lane.exchange;
    }
    if (until == all_exchanges) lane.now += overheads_.call;
    return true;
  }

  void finish_call(Lane& lane) {
    events_of(lane).push_back({lane.queue, lane.call().position, -1, lane.step(), lane.begin, lane.now});
    lane.done.push_back(lane.now);
    lane.begun = false;
    lane.exchange = 0;
  }

  std::vector<Event>& events_of(const Lane& lane) { return result_.ranks[lane.rank].events; }

  // Whether it is over. What moves bytes beside others ends when those let it.
  bool compute(Lane& lane, std::size_t index) {
    const CallCost& cost = cost_of(lane.rank, lane.call());
    if (!lane.moving) {
      std::vector<Sharing::Load> loads = loads_of(lane, cost);
      lane.now = lane.begin + cost.seconds;
      if (loads.empty()) return true;
      sharing_.begin(index, lane.begin, cost.seconds, std::move(loads));
      lane.moving = true;
    }
    if (!lane.moved) return false;
    if (lane.step() + 1 == options_.steps)
      result_.ranks[lane.rank].slowed += lane.now - lane.begin - cost.seconds;
    lane.moving = lane.moved = false;
    return true;
  }

  // False: there is none. Nobody else can go on, so none begins before.
  bool end_next_move() {
    const std::optional<Sharing::Ended> ended = sharing_.next();
    if (!ended) return false;
    Lane& lane = lanes_[ended->tag];
    lane.now = ended->at;
    lane.moved = true;
    wake(ended->tag);
    return true;
  }

  std::vector<Sharing::Load> loads_of(const Lane& lane, const CallCost& cost) const {
    std::vector<Sharing::Load> loads;
    if (cost.seconds <= 0) return loads;
    for (const auto& [link, bytes] : cost.links)
      if (const auto found = links_.find({lane.rank, link}); found != links_.end() && bytes > 0)
        loads.push_back({found->second, bytes / cost.seconds});
    const double most = prices_.host_bandwidth(), asked = std::min(most, cost.host_bytes / cost.seconds);
    const std::int64_t own = host_of(rank_of(lane).rank);
    for (const auto& [number, host] : hosts_)
      if (const auto alike = host.alike.find(lane.rank); asked > 0 && alike != host.alike.end())
        loads.push_back({host.carrier, asked, static_cast<double>(alike->second), number == own});
    return loads;
  }

  // The same for every instance and microbatch.
  const CallCost& cost_of(std::size_t number, const Call& call) {
    const SimulatedRank& rank = result_.ranks[number].simulated;
    const auto [entry, fresh] = costs_.try_emplace({rank.plan, call.function, call.piece});
    CallCost& cost = entry->second;
    if (!fresh) return cost;
    cost.seconds = overheads_.call;
    for (const PlannedStep& step : rank.plan->steps(call)) {
      cost.seconds += prices_.kernel(*rank.program, step);
      const Carried carried = prices_.carried(*rank.program, *rank.plan, step);
      cost.host_bytes += carried.host;
      if (carried.link >= 0) cost.links[carried.link] += carried.link_bytes;
    }
    return cost;
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
    double seconds = prices_.exchange(exchange, channel.members, queue);
    if (lane.at_once && lane.exchange > 0)
      seconds = std::max(0.0, seconds - prices_.fixed(exchange, channel.members));
    else if (channel.classes.size() == 1)
      seconds += prices_.lateness(exchange, channel.members, queue);
    meeting.end = meeting.latest + seconds;
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
    if (lane.limits.asynchronous && lane.pieces[lane.piece].exchanges && lane.pool != no_pool)
      return pools_[lane.pool].inside == pools_[lane.pool].most
                 ? detail::concat("waits for one of the ", pools_[lane.pool].most,
                                  " exchanges under way to end")
                 : "waits for the exchange before it in the plan to begin";
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
    for (std::size_t rank = 0; rank < feeders_.size(); ++rank)
      if (const Lane* const lane = fed_next(rank); lane && named < most / 2) {
        ++named;
        const SimulatedRank& of = rank_of(*lane);
        const Call& call = *feeders_[rank].calls[feeders_[rank].next % feeders_[rank].calls.size()];
        text += detail::concat("\n  rank ", of.rank, ", the feeder, holds call ", call.position, " (",
                               call_name(*of.program, *of.plan, call), ") for queue ", name_of(*lane),
                               ", which is full with ", lane->limits.depth);
      }
    for (Lane& lane : lanes_) {
      if (!unfinished(lane) || (lane.limits.asynchronous && lane.handed == lane.passed)) continue;
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
  std::map<std::tuple<const Plan*, std::int32_t, std::int32_t>, CallCost> costs_;
  // What calls share: links by rank and number, and hosts with how many of each class are there.
  struct Host {
    std::size_t carrier = 0;
    std::map<std::size_t, std::int64_t> alike;
  };
  Sharing sharing_;
  std::map<std::pair<std::size_t, std::int32_t>, std::size_t> links_;
  std::map<std::int64_t, Host> hosts_;
  std::unordered_map<const std::vector<int>*, std::size_t> company_by_group_;
  std::map<std::vector<int>, std::size_t> companies_;
  std::map<std::tuple<std::string, std::size_t, int, int>, std::size_t> channel_numbers_;
  std::vector<Channel> channels_;
  std::vector<Feeder> feeders_;  // by simulated rank, where there are limits
  std::vector<Pool> pools_;
  FedPieces pieces_;
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
