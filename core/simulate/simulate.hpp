// Runs plans in virtual time. Each queue goes through its calls in order and waits as the plan says; an
// exchange begins when all who take part have reached it; a send meets the receive that has the same number
// between the same two ranks. Calls that move bytes through the same link or the host's memory at the same
// time share what it carries: a link as much as the fastest of its rank's calls that use it.
//
// Ranks that cannot be told apart (same plan, same company) are simulated once, however many they are.
#pragma once

#include <functional>
#include <memory>

#include "simulate/events.hpp"

namespace prun {

// What the executor adds, in seconds.
struct Overheads {
  double call = 0;     // to each call
  double handoff = 0;  // from the end of a call until a queue that stood still for it goes on
};

// Bytes that a step moves through what others move theirs through at the same time.
struct Carried {
  double host = 0;         // through memory of the host
  double link_bytes = 0;   // through a link of its rank's
  std::int32_t link = -1;  // which one, by a number of the prices' own; none where it is -1
};

// What things take, in seconds.
class Prices {
 public:
  virtual ~Prices() = default;
  virtual double kernel(const Program& program, const PlannedStep& step) = 0;
  // `queue`: the name of the queue it is in.
  virtual double exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) = 0;
  // What of that it takes however little it carries: those that are started together take it once.
  virtual double fixed(const PlannedExchange&, std::int64_t /*members*/) { return 0; }
  // How much later than on average the last of members who do the same is there: no two ranks are equally
  // fast.
  virtual double lateness(const PlannedExchange&, std::int64_t /*members*/, std::string_view /*queue*/) {
    return 0;
  }
  virtual Overheads overheads() { return {}; }
  virtual Carried carried(const Program&, const Plan&, const PlannedStep&) { return {}; }
  // Bytes a second that go through memory of a host; 0: nobody is held up there.
  virtual double host_bandwidth() { return 0; }
};

// Ranks by number, in the order of the members.
using Group = std::shared_ptr<const std::vector<int>>;

struct SimulatedRank {
  const Program* program = nullptr;
  const Plan* plan = nullptr;
  int rank = 0;
  std::vector<Group> groups;  // by queue; null: it does not communicate
};

// All ranks of the program's mesh, each with its plan.
std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of);

// By rank, a number that those share who cannot be told apart: they have the same plan and, by queue, members
// with the same numbers in the same order.
std::vector<int> tell_apart(std::span<const SimulatedRank> ranks);

// What may hold a queue up beside its waits.
struct QueueLimits {
  bool asynchronous = false;  // its rank's feeder fills it; else it has a thread of its own
  // Pieces of work that it takes before it holds the feeder, as a device counts them; 0: any number.
  std::int64_t depth = 0;
  // Exchanges that a rank has under way at a time on all asynchronous queues with this word, which begin in
  // the order of the plan where there are more such queues than that; 0: any number.
  std::int64_t resident = 0;
  std::string pool = {};
};

struct SimulateOptions {
  std::int64_t steps = 3;
  // The host starts a step as soon as no more than so many are started and not done, as Trainer::run() does.
  std::int64_t running = 2;
  // Nothing: no limits. With some it is only asked whether the steps end: neither how long a feeder is held
  // is counted, nor what it hands over ahead of its step held back.
  std::function<QueueLimits(const QueueInfo&)> limits = {};
  // The feeder also hands over the stamps of timed probes.
  bool stamps = false;
  // Ranks of a host, whose memory they share: those of consecutive numbers; 0: all.
  std::int64_t ranks_of_host = 0;
  // Queues whose comm plugin gets the exchanges of a call at once. Nothing: none.
  std::function<bool(const QueueInfo&)> at_once = {};
};

// One rank, for all that are like it.
struct RankTimes {
  int rank = 0;
  std::int64_t alike = 1;  // how many there are, itself included
  SimulatedRank simulated;
  StepTimes times;            // of the last step
  std::vector<Event> events;  // of all steps
  // Of a step: bytes that it moves through memory of the host, and how much longer its calls took because
  // others moved bytes through the same memory or link.
  double host_bytes = 0, slowed = 0;
};

struct Simulation {
  double step_seconds = 0;  // from the end of the step before to the end of the last one
  std::vector<RankTimes> ranks;

  // Of the rank that has most of it.
  double exposed_communication() const;
};

// Throws an Error of code hang when nobody can go on, naming the ranks, queues and calls that wait for each
// other. Programs and plans must outlive the result.
Simulation simulate(std::span<const SimulatedRank> ranks, Prices& prices,
                    const SimulateOptions& options = {});

}  // namespace prun
