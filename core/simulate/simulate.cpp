#include "simulate/simulate.hpp"

#include <algorithm>
#include <optional>

#include "base/narrow.hpp"
#include "simulate/call_costs.hpp"
#include "simulate/carriers.hpp"
#include "simulate/channels.hpp"
#include "simulate/deadlock.hpp"
#include "simulate/lane_clocks.hpp"
#include "simulate/lanes.hpp"

namespace prun {
namespace {

// Returns how many steps run at a time: steps that overlap need at least as many as are at work.
std::int64_t running_of(const RankClasses& ranks, const SimulateOptions& options) {
  std::int64_t running = options.running;
  for (std::size_t rank = 0; rank < ranks.count(); ++rank)
    if (const Plan& plan = *ranks.first(rank).plan; plan.overlaps)
      running = std::max<std::int64_t>(running, plan.running);
  return running;
}

class Simulator {
 public:
  Simulator(std::span<const SimulatedRank> ranks, Prices& prices, const SimulateOptions& options)
      : prices_(prices),
        overheads_(prices.overheads()),
        options_(options),
        ranks_(ranks),
        lanes_(ranks_, options.steps),
        clocks_(lanes_, running_of(ranks_, options)),
        exchanging_(ranks_.count()),
        channels_(ranks_, lanes_, options.ranks_of_host),
        costs_(prices, overheads_.call, options.cores_of),
        carriers_(ranks_, costs_,
                  {prices.host_bandwidth(), prices.drive_bandwidth(), options.cores_of_host,
                   options.ranks_of_host}) {
    for (std::size_t rank = 0; rank < ranks_.count(); ++rank)
      result_.ranks.push_back({ranks_.first(rank).rank, ranks_.size(rank), ranks_.first(rank), {}, {}});
    if (options.enqueued)
      for (std::size_t lane = 0; lane < lanes_.count(); ++lane)
        clocks_[lane].enqueued = options.enqueued(lanes_.info_of(lanes_[lane]));
    if (options.save_reads)
      for (std::size_t rank = 0; rank < ranks_.count(); ++rank) begin_save(rank);
  }

  Simulation run() {
    lanes_.wake_all();
    do {
      while (const std::optional<std::size_t> lane = lanes_.next_awake()) work(*lane);
    } while (end_next_move());
    for (const Lane& lane : lanes_)
      if (lanes_.is_unfinished(lane)) throw_error(ErrorCode::hang, deadlock_text(ranks_, lanes_, channels_));
    finish();
    return std::move(result_);
  }

 private:
  // Computes when the save lets each call of a rank begin.
  void begin_save(std::size_t rank) {
    const Plan& plan = *ranks_.first(rank).plan;
    const Numbered<double> ends = options_.save_reads(ranks_.first(rank));
    const auto saver = narrow<std::int32_t>(plan.queues.size());
    for (std::size_t read = 0; read < ends.size(); ++read)
      result_.ranks[rank].events.push_back(
          {saver, static_cast<std::int32_t>(read), -1, 0, read > 0 ? ends[read - 1] : 0.0, ends[read]});
    double fed = 0;
    for (const Call& call : plan.calls) {
      double until = call.save_read >= 0 ? ends[call.save_read] : 0;
      if (options_.fed && options_.fed(plan.queues[call.queue])) until = fed = std::max(fed, until);
      clocks_[lanes_.of(rank, call.queue)].saved.push_back(until);
    }
  }

  void work(std::size_t number) {
    Lane& lane = lanes_[number];
    LaneClock& clock = clocks_[number];
    bool moved = false;
    while (lanes_.is_unfinished(lane) && begin_call(lane, clock) && run_call(lane, clock, number)) {
      end_call(lane, clock);
      moved = true;
    }
    if (moved) lanes_.wake_rank(lane.rank);
  }

  // Says whether all that the next call waits for is done; then its waits are over.
  bool begin_call(Lane& lane, LaneClock& clock) {
    if (clock.begun) return true;
    const std::optional<double> start = clocks_.started(lane);
    if (!start) return false;
    const Call& call = lane.call();
    for (const Wait& wait : call.waits)
      if (!lanes_.is_over(lane, wait)) return false;
    double now = std::max(*start, clock.now);
    for (const Wait& wait : call.waits) {
      const double done = clocks_.end_of(lane, wait);
      if (done <= now) continue;
      const double resumed = done + overheads_.handoff;
      events_of(lane).push_back({lane.queue, call.position, wait.queue, lane.step(), now, resumed});
      now = resumed;
    }
    const double saved = clock.saved.empty() ? 0 : clock.saved[call.position];
    if (saved > now) {
      const auto saver = static_cast<std::int32_t>(lanes_.rank_of(lane).plan->queues.size());
      events_of(lane).push_back({lane.queue, call.position, saver, lane.step(), now, saved});
      now = saved;
    }
    clock.begin = clock.now = now;
    return clock.begun = true;
  }

  bool run_call(Lane& lane, LaneClock& clock, std::size_t number) {
    if (!lanes_.runs(lane)) return true;
    if (!lanes_.group_of(lane)) return compute(lane, clock, number);
    const std::span<const PlannedStep> steps = lanes_.rank_of(lane).plan->steps(lane.call());
    for (; lane.exchange < steps.size(); ++lane.exchange) {
      const std::optional<PlannedExchange>& exchange = steps[lane.exchange].exchange;
      PRUN_CHECK(exchange, "a kernel on a queue that communicates");
      const auto seconds = [&](const Channels::Company& company) {
        return seconds_of(lane, clock, *exchange, company);
      };
      if (!channels_.meet(number, *exchange, clock.now, seconds)) return false;
      if (clock.enqueued) exchanging_[lane.rank].emplace_back(channels_.met_at(number), clock.now);
    }
    clock.now += overheads_.call;
    return true;
  }

  double seconds_of(const Lane& lane, const LaneClock& clock, const PlannedExchange& exchange,
                    const Channels::Company& company) {
    const std::string& queue = lanes_.info_of(lane).name;
    const double seconds =
        options_.exchange_delay + (company.far ? prices_.far_exchange(exchange, company.members, queue)
                                               : prices_.exchange(exchange, company.members, queue));
    if (clock.enqueued && lane.exchange > 0)
      return std::max(0.0, seconds - prices_.fixed(exchange, company.members));
    return company.classes == 1 ? seconds + prices_.lateness(exchange, company.members, queue) : seconds;
  }

  // Says whether a call is over. A call that moves bytes beside others ends when they let it.
  bool compute(const Lane& lane, LaneClock& clock, std::size_t number) {
    const CallCost& cost = costs_.of(lanes_.rank_of(lane), lane.call());
    if (!clock.moving) {
      clock.now = clock.begin + cost.seconds;
      if (!carriers_.move(number, lane.rank, clock.begin, cost)) return true;
      clock.moving = true;
    }
    if (!clock.moved) return false;
    if (lane.step() + 1 == options_.steps)
      result_.ranks[lane.rank].slowed += clock.now - clock.begin - cost.seconds;
    clock.moving = clock.moved = false;
    return true;
  }

  void end_call(Lane& lane, LaneClock& clock) {
    if (lanes_.runs(lane))
      events_of(lane).push_back({lane.queue, lane.call().position, -1, lane.step(), clock.begin, clock.now});
    clock.ended.push_back(clock.now);
    clock.begun = false;
    lane.end_call();
  }

  std::vector<Event>& events_of(const Lane& lane) { return result_.ranks[lane.rank].events; }

  // Ends the next move; returns false if there is none. No other lane can go on, so none begins before.
  bool end_next_move() {
    const std::optional<Sharing::Ended> ended = carriers_.next();
    if (!ended) return false;
    clocks_[ended->tag].now = ended->at;
    clocks_[ended->tag].moved = true;
    lanes_.wake(ended->tag);
    return true;
  }

  void finish() {
    const Numbered<double> ends = clocks_.ends_of_rounds();
    result_.all_seconds = ends.back();
    const auto last = static_cast<std::size_t>(options_.steps) - 1;
    result_.step_seconds = ends[last] - (last > 0 ? ends[last - 1] : 0);
    for (std::size_t number = 0; number < ranks_.count(); ++number) {
      RankTimes& rank = result_.ranks[number];
      rank.times = summarize(*rank.simulated.plan, rank.events, options_.steps - 1);
      rank.host_bytes = carriers_.host_bytes(number);
      rank.slowed_by_exchanges = slowed_by_exchanges(number);
    }
    result_.step_seconds += result_.slowed_by_exchanges();
  }

  // Returns how much longer slower kernels make the step, wherever they stand in it: other ranks wait for a
  // device that computes. Calls that took turns with exchanges in virtual time would give the same at many
  // times the work.
  double slowed_by_exchanges(std::size_t number) const {
    const RankTimes& rank = result_.ranks[number];
    const double share = prices_.share_beside_exchanges();
    if (share >= 1) return 0;
    return (1 / share - 1) *
           seconds_beside(*rank.simulated.plan, rank.events, options_.steps - 1, exchanging_[number]);
  }

  Prices& prices_;
  const Overheads overheads_;
  const SimulateOptions& options_;
  const RankClasses ranks_;
  Lanes lanes_;
  LaneClocks clocks_;
  std::vector<std::vector<std::pair<double, double>>>
      exchanging_;  // by class: intervals of exchanges on the device
  Channels channels_;
  CallCosts costs_;
  Carriers carriers_;
  Simulation result_;  // result; its ranks are one a class, in the order of the classes
};

}  // namespace

double Simulation::exposed_communication() const {
  double most = 0;
  for (const RankTimes& rank : ranks) most = std::max(most, rank.times.exposed_communication);
  return std::min(most, step_seconds);
}

double Simulation::slowed_by_exchanges() const {
  double most = 0;
  for (const RankTimes& rank : ranks) most = std::max(most, rank.slowed_by_exchanges);
  return most;
}

Simulation simulate(std::span<const SimulatedRank> ranks, Prices& prices, const SimulateOptions& options) {
  PRUN_CHECK(!ranks.empty() && options.steps > 0, ranks.size(), " ranks, ", options.steps, " steps");
  return Simulator(ranks, prices, options).run();
}

}  // namespace prun
