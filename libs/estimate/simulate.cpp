#include "estimate/simulate.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/narrow.hpp"
#include "estimate/cost_model.hpp"
#include "plan/proof/deadlock.hpp"
#include "plan/proof/lanes.hpp"
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- sharing

std::size_t Sharing::add_carrier(double bytes_per_second) {
  PRUN_CHECK(bytes_per_second > 0, bytes_per_second, " bytes a second");
  carriers_.push_back(bytes_per_second);
  return carriers_.size() - 1;
}

void Sharing::begin(std::size_t tag, double at, double seconds, std::vector<Load> loads) {
  PRUN_CHECK(at >= now_ && seconds > 0, "a work of ", seconds, " s begins at ", at, ", after ", now_);
  works_.push_back({tag, at, seconds, 1, std::move(loads)});
}

std::optional<Sharing::Ended> Sharing::next() {
  while (!works_.empty()) {
    const auto by_begin = [](const Work& a, const Work& b) { return a.since < b.since; };
    if (going_on().empty()) now_ = std::min_element(works_.begin(), works_.end(), by_begin)->since;
    const std::vector<Work*> works = going_on();
    set_speeds(works);
    const Work* const first = *std::min_element(
        works.begin(), works.end(), [](const Work* a, const Work* b) { return a->end() < b->end(); });
    double begins = std::numeric_limits<double>::infinity();
    for (const Work& work : works_)
      if (work.since > now_) begins = std::min(begins, work.since);
    if (begins < first->end()) {
      now_ = begins;
      continue;
    }
    now_ = first->end();
    const Ended ended{first->tag, now_};
    works_.erase(works_.begin() + (first - works_.data()));
    return ended;
  }
  return {};
}

std::vector<Sharing::Work*> Sharing::going_on() {
  std::vector<Work*> works;
  for (Work& work : works_)
    if (work.since <= now_) works.push_back(&work);
  return works;
}

// A call whose speed stays is not touched, so that its times are not rounded again.
void Sharing::set_speeds(std::span<Work* const> works) const {
  std::vector<double> speeds(works.size(), 1);
  for (std::size_t carrier = 0; carrier < carriers_.size(); ++carrier) {
    double asked = 0;
    const auto each = [&](auto&& body) {
      for (std::size_t i = 0; i < works.size(); ++i)
        for (const Load& load : works[i]->loads)
          if (load.carrier == carrier) body(load, speeds[i]);
    };
    each([&](const Load& load, double speed) { asked += load.bytes_per_second * speed * load.times; });
    if (asked <= carriers_[carrier]) continue;
    each([&](const Load& load, double& speed) {
      if (load.is_held_up) speed *= carriers_[carrier] / asked;
    });
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    Work& work = *works[i];
    if (work.speed == speeds[i]) continue;
    work.left -= (now_ - work.since) * work.speed;
    work.since = now_;
    work.speed = speeds[i];
  }
}

namespace {

// ------------------------------------------------------------------- simulate

// ------------------------------------------------------------ call costs

// A call's time alone, the bytes it moves, and its cores.
struct CallCost {
  double seconds = 0, host_bytes = 0, drive_bytes = 0;
  double cores = 0;                      // of the host, shared by its ranks
  std::map<std::int32_t, double> links;  // by link
};

class CallCosts {
 public:
  using CoresOf = std::function<double(const QueueInfo&)>;

  // `overhead`: seconds added to each call. `cores_of`: see SimulateOptions.
  CallCosts(CostModel& cost_model, double overhead, CoresOf cores_of)
      : cost_model_(cost_model), overhead_(overhead), cores_of_(std::move(cores_of)) {}

  // Needs a call that does not communicate. The reference stays valid.
  const CallCost& of(const SimulatedRank& rank, const Call& call);

 private:
  CostModel& cost_model_;
  const double overhead_;
  const CoresOf cores_of_;
  // By plan, function and piece: costs are the same for all layers and microbatches.
  std::map<std::tuple<const Plan*, std::int32_t, std::int32_t>, CallCost> costs_;
};

const CallCost& CallCosts::of(const SimulatedRank& rank, const Call& call) {
  const auto [entry, fresh] = costs_.try_emplace({rank.plan, call.function, call.piece});
  CallCost& cost = entry->second;
  if (!fresh) return cost;
  cost.seconds = overhead_;
  if (cores_of_) cost.cores = cores_of_(rank.plan->queues[call.queue]);
  for (const PlannedStep& step : rank.plan->steps(call)) {
    cost.seconds += cost_model_.kernel(*rank.program, step);
    const Carried carried = cost_model_.carried(*rank.program, *rank.plan, step);
    cost.host_bytes += carried.host;
    cost.drive_bytes += carried.drives;
    if (carried.link >= 0) cost.links[carried.link] += carried.link_bytes;
  }
  return cost;
}

// ------------------------------------------------------------ lane clocks

// Virtual time of each lane (a queue of a simulated rank): when its calls ended, so when waiting calls may
// begin.

// The current call of a lane, and the ends of earlier ones.
struct LaneClock {
  double begin = 0, now = 0;
  bool begun = false;
  bool moving = false, moved = false;  // its bytes are being moved, or all are moved
  bool enqueued = false;               // its collectives start together, on the device
  std::vector<double> ended;           // by ticket
  Numbered<double> saved;              // by position: a save lets the call begin
                                       // no earlier than this; empty without a save
};

class LaneClocks {
 public:
  // The host lets `running` steps overlap.
  LaneClocks(const Lanes& lanes, std::int64_t running)
      : lanes_(lanes), running_(running), clocks_(lanes.count()) {}

  LaneClock& operator[](std::size_t lane) { return clocks_[lane]; }
  const LaneClock& operator[](std::size_t lane) const { return clocks_[lane]; }

  // Returns when the host starts the step; nothing if that is unknown yet.
  std::optional<double> started(const Lane& lane) const {
    if (lane.step() < running_) return 0;
    const auto done = static_cast<std::size_t>(lane.step() - running_ + 1);  // steps that must have ended
    double latest = 0;
    for (std::size_t q = 0; q < lanes_.rank_of(lane).plan->queues.size(); ++q) {
      const std::size_t number = lanes_.of(lane.rank, static_cast<std::int32_t>(q));
      const std::size_t calls = lanes_[number].calls_until(done);
      if (calls == 0) continue;
      if (lanes_[number].ended < calls) return {};
      latest = std::max(latest, clocks_[number].ended[calls - 1]);
    }
    return latest;
  }

  // Returns the end of a wait that is over.
  double end_of(const Lane& lane, const Wait& wait) const {
    const std::int64_t step = lane.step() - wait.steps_ago;
    if (step < 0) return 0;
    const std::size_t other = lanes_.of(lane.rank, wait.queue);
    return clocks_[other].ended[lanes_[other].ticket(step, wait.call)];
  }

  // Returns, by iteration, when its last lane ended; all calls have run.
  Numbered<double> ends_of_iterations() const {
    Numbered<double> ends(lanes_.iterations(), 0.0);
    for (std::size_t lane = 0; lane < lanes_.count(); ++lane)
      if (const std::size_t calls = lanes_[lane].calls.size(); calls > 0)
        for (std::size_t iteration = 0; iteration < ends.size(); ++iteration)
          ends[iteration] = std::max(ends[iteration], clocks_[lane].ended[(iteration + 1) * calls - 1]);
    return ends;
  }

 private:
  const Lanes& lanes_;
  const std::int64_t running_;
  std::vector<LaneClock> clocks_;
};

// ------------------------------------------------------------ carriers

// Holds what calls share: links of each rank (as fast as the fastest call that uses them), memory, drives and
// cores of each host.
class Carriers {
 public:
  // Bandwidth of a host's memory and drives, and its cores; 0: unlimited. `ranks`: see
  // SimulateOptions::ranks_of_host.
  struct Host {
    double bandwidth = 0, drives = 0, cores = 0;
    std::int64_t ranks = 0;
  };
  // The references must outlive it.
  Carriers(const RankClasses& ranks, CallCosts& costs, const Host& host);

  // Moves the bytes of a call from `begin` on. Returns false if it shares nothing.
  bool move(std::size_t lane, std::size_t rank, double begin, const CallCost& cost);
  // Returns the next lane whose call ends, and when.
  std::optional<Sharing::Ended> next() { return sharing_.next(); }
  // Returns them for a step.
  double host_bytes(std::size_t rank) const { return host_bytes_[rank]; }

 private:
  struct CarriersOfHost {
    std::size_t memory = 0, drives = 0, cores = 0;
    std::map<std::size_t, std::int64_t> alike;  // ranks of each class
  };

  void add_links(std::size_t rank, CallCosts& costs);
  void add_hosts();
  std::int64_t host_of(int rank) const { return host_.ranks > 0 ? rank / host_.ranks : 0; }
  std::vector<Sharing::Load> loads_of(std::size_t rank, const CallCost& cost) const;

  const RankClasses& ranks_;
  const Host host_;
  Sharing sharing_;
  std::map<std::pair<std::size_t, std::int32_t>, std::size_t> links_;  // by rank and number
  std::map<std::int64_t, CarriersOfHost> hosts_;
  std::vector<double> host_bytes_;
};

Carriers::Carriers(const RankClasses& ranks, CallCosts& costs, const Host& host)
    : ranks_(ranks), host_(host), host_bytes_(ranks.count()) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) add_links(rank, costs);
  if (host.bandwidth > 0 || host.drives > 0 || host.cores > 0) add_hosts();
}

void Carriers::add_links(std::size_t rank, CallCosts& costs) {
  const SimulatedRank& of = ranks_.first(rank);
  std::map<std::int32_t, double> fastest;
  for (const Call& call : of.plan->calls) {
    if (of.groups[call.queue]) continue;
    const CallCost& cost = costs.of(of, call);
    host_bytes_[rank] += cost.host_bytes;
    for (const auto& [link, bytes] : cost.links)
      if (cost.seconds > 0) fastest[link] = std::max(fastest[link], bytes / cost.seconds);
  }
  for (const auto& [link, rate] : fastest) links_[{rank, link}] = sharing_.add_carrier(rate);
}

void Carriers::add_hosts() {
  for (std::size_t rank = 0; rank < ranks_.count(); ++rank) hosts_[host_of(ranks_.first(rank).rank)];
  for (auto& [number, host] : hosts_) {
    if (host_.bandwidth > 0) host.memory = sharing_.add_carrier(host_.bandwidth);
    if (host_.drives > 0) host.drives = sharing_.add_carrier(host_.drives);
    if (host_.cores > 0) host.cores = sharing_.add_carrier(host_.cores);
  }
  for (const SimulatedRank& rank : ranks_.ranks())
    if (const auto host = hosts_.find(host_of(rank.rank)); host != hosts_.end())
      ++host->second.alike[static_cast<std::size_t>(ranks_.class_of(rank.rank))];
}

bool Carriers::move(std::size_t lane, std::size_t rank, double begin, const CallCost& cost) {
  std::vector<Sharing::Load> loads = loads_of(rank, cost);
  if (loads.empty()) return false;
  sharing_.begin(lane, begin, cost.seconds, std::move(loads));
  return true;
}

std::vector<Sharing::Load> Carriers::loads_of(std::size_t rank, const CallCost& cost) const {
  std::vector<Sharing::Load> loads;
  if (cost.seconds <= 0) return loads;
  for (const auto& [link, bytes] : cost.links)
    if (const auto found = links_.find({rank, link}); found != links_.end() && bytes > 0)
      loads.push_back({found->second, bytes / cost.seconds});
  const double bytes = std::min(host_.bandwidth, cost.host_bytes / cost.seconds);
  const double drives = std::min(host_.drives, cost.drive_bytes / cost.seconds);
  const double cores = std::min(host_.cores, cost.cores);
  const std::int64_t own = host_of(ranks_.first(rank).rank);
  for (const auto& [number, host] : hosts_) {
    const auto alike = host.alike.find(rank);
    if (alike == host.alike.end()) continue;
    const auto times = static_cast<double>(alike->second);
    if (bytes > 0) loads.push_back({host.memory, bytes, times, number == own});
    if (drives > 0) loads.push_back({host.drives, drives, times, number == own});
    if (cores > 0) loads.push_back({host.cores, cores, times, number == own});
  }
  return loads;
}

// Returns the number of steps that overlap: at least those that plans keep in flight.
std::int64_t running_of(const RankClasses& ranks, const SimulateOptions& options) {
  std::int64_t running = options.running;
  for (std::size_t rank = 0; rank < ranks.count(); ++rank)
    if (const Plan& plan = *ranks.first(rank).plan; plan.overlaps)
      running = std::max<std::int64_t>(running, plan.running);
  return running;
}

class Simulator {
 public:
  Simulator(std::span<const SimulatedRank> ranks, CostModel& cost_model, const SimulateOptions& options)
      : cost_model_(cost_model),
        overheads_(cost_model.overheads()),
        options_(options),
        ranks_(ranks),
        lanes_(ranks_, options.steps),
        clocks_(lanes_, running_of(ranks_, options)),
        exchanging_(ranks_.count()),
        channels_(ranks_, lanes_, options.ranks_of_host),
        costs_(cost_model, overheads_.call, options.cores_of),
        carriers_(ranks_, costs_,
                  {cost_model.host_bandwidth(), cost_model.drive_bandwidth(), options.cores_of_host,
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
  void begin_save(std::size_t rank) {
    const Plan& plan = *ranks_.first(rank).plan;
    const Numbered<double> ends = options_.save_reads(ranks_.first(rank));
    const auto saver = narrow<std::int32_t>(plan.queues.size());
    for (std::size_t read = 0; read < ends.size(); ++read)
      result_.ranks[rank].events.push_back(
          {saver, static_cast<std::int32_t>(read), -1, 0, read > 0 ? ends[read - 1] : 0.0, ends[read]});
    double submitted = 0;
    for (const Call& call : plan.calls) {
      double until = call.save_read >= 0 ? ends[call.save_read] : 0;
      if (options_.submitted && options_.submitted(plan.queues[call.queue]))
        until = submitted = std::max(submitted, until);
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

  // Returns true once all waits of the next call are over; ends them.
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
      const auto seconds = [&](const Channels::Participants& participants) {
        return seconds_of(lane, clock, *exchange, participants);
      };
      if (!channels_.meet(number, *exchange, clock.now, seconds)) return false;
      if (clock.enqueued) exchanging_[lane.rank].emplace_back(channels_.met_at(number), clock.now);
    }
    clock.now += overheads_.call;
    return true;
  }

  double seconds_of(const Lane& lane, const LaneClock& clock, const PlannedExchange& exchange,
                    const Channels::Participants& participants) {
    const std::string& queue = lanes_.info_of(lane).name;
    const double seconds = options_.exchange_delay +
                           (participants.far ? cost_model_.far_exchange(exchange, participants.members, queue)
                                             : cost_model_.exchange(exchange, participants.members, queue));
    if (clock.enqueued && lane.exchange > 0)
      return std::max(0.0, seconds - cost_model_.fixed(exchange, participants.members));
    return participants.classes == 1 ? seconds + cost_model_.lateness(exchange, participants.members, queue)
                                     : seconds;
  }

  // Returns true once a call is over. One that shares carriers ends when they let it.
  bool compute(const Lane& lane, LaneClock& clock, std::size_t number) {
    if (!clock.moving && has_nothing_to_do(lane, clock)) {
      clock.now = clock.begin + overheads_.call;
      return true;
    }
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

  // Returns whether a call of `speculate` comes too late, or one of `settle` finds the update complete.
  bool has_nothing_to_do(const Lane& lane, const LaneClock& clock) {
    const Call& call = lane.call();
    const FunctionKind kind = lanes_.rank_of(lane).plan->functions[call.function].kind;
    const std::tuple update{lane.rank, lane.step(), call.instance};
    if (kind == FunctionKind::settle) return speculated_.contains(update);
    if (!call.unless) return false;
    if (!options_.speculates) return true;
    const std::size_t other = lanes_.of(lane.rank, call.unless->queue);
    const std::size_t ticket = lanes_[other].ticket(lane.step(), call.unless->call);
    if (ticket < clocks_[other].ended.size() && clocks_[other].ended[ticket] <= clock.begin) return true;
    speculated_.insert(update);
    return false;
  }

  void end_call(Lane& lane, LaneClock& clock) {
    if (lanes_.runs(lane))
      events_of(lane).push_back({lane.queue, lane.call().position, -1, lane.step(), clock.begin, clock.now});
    clock.ended.push_back(clock.now);
    clock.begun = false;
    lane.end_call();
  }

  std::vector<Event>& events_of(const Lane& lane) { return result_.ranks[lane.rank].events; }

  // Ends the next move, since no lane can go on without; false if there is none.
  bool end_next_move() {
    const std::optional<Sharing::Ended> ended = carriers_.next();
    if (!ended) return false;
    clocks_[ended->tag].now = ended->at;
    clocks_[ended->tag].moved = true;
    lanes_.wake(ended->tag);
    return true;
  }

  void finish() {
    const Numbered<double> ends = clocks_.ends_of_iterations();
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

  // Returns how much longer kernels make the step because collectives run concurrently. It is added for the
  // step instead of simulated call by call, which would take many times as long for the same result.
  double slowed_by_exchanges(std::size_t number) const {
    const RankTimes& rank = result_.ranks[number];
    const double share = cost_model_.share_beside_exchanges();
    if (share >= 1) return 0;
    return (1 / share - 1) *
           seconds_beside(*rank.simulated.plan, rank.events, options_.steps - 1, exchanging_[number]);
  }

  CostModel& cost_model_;
  const Overheads overheads_;
  const SimulateOptions& options_;
  const RankClasses ranks_;
  Lanes lanes_;
  LaneClocks clocks_;
  std::vector<std::vector<std::pair<double, double>>>
      exchanging_;  // by class: intervals of collectives on the device
  Channels channels_;
  CallCosts costs_;
  Carriers carriers_;
  std::set<std::tuple<std::size_t, std::int64_t, std::int32_t>> speculated_;  // updates: rank, step, instance
  Simulation result_;  // one rank for each class, in order
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

Simulation simulate(std::span<const SimulatedRank> ranks, CostModel& cost_model,
                    const SimulateOptions& options) {
  PRUN_CHECK(!ranks.empty() && options.steps > 0, ranks.size(), " ranks, ", options.steps, " steps");
  return Simulator(ranks, cost_model, options).run();
}

}  // namespace prun
