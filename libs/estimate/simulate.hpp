// Runs plans in virtual time, to predict a step and what it exposes. Each queue runs its calls in order and
// waits as the plan states. A collective starts when all members have reached it; a send meets the receive
// with the same number between the same ranks. Concurrent calls share links, host memory, drives and cores.
//
// Ranks with the same plan and equivalent peers are simulated once. Example: 512 data-parallel ranks of a
// pipeline of 8 stages are 8 simulated ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "estimate/cost_model.hpp"
#include "plan/proof/events.hpp"
#include "plan/proof/lanes.hpp"

namespace prun {

// ------------------------------------------------------------------- simulate

struct SimulateOptions {
  std::int64_t steps = 3;
  // The host starts a step when fewer than this many are in flight, like Trainer::run().
  std::int64_t running = 2;
  // Number of consecutive ranks on a host, which share its memory; 0: all.
  std::int64_t ranks_of_host = 0;
  // Cores of a host, shared by its ranks; a call takes `cores_of` its queue. 0 or an empty function:
  // unlimited.
  double cores_of_host = 0;
  double exchange_delay = 0;  // seconds added to each collective, as if its threads waited for a core
  std::function<double(const QueueInfo&)> cores_of = {};
  // Queues whose comm plugin enqueues: it gets all collectives of a call at once, and they run on the device
  // concurrently with kernels. Empty: none.
  std::function<bool(const QueueInfo&)> enqueued = {};
  // For a save that begins with the first step: by rank, the seconds after which each read is done. Empty: no
  // save.
  std::function<std::vector<double>(const SimulatedRank&)> save_reads = {};
  // Queues that one thread fills in plan order: a call that blocks delays those behind it. Empty: none.
  std::function<bool(const QueueInfo&)> submitted = {};
  // False: no update is speculative, as in the step behind one that is beyond the limit of the norm.
  bool speculates = true;
};

// Result for one rank, and for all like it.
struct RankTimes {
  int rank = 0;
  std::int64_t alike = 1;  // number of such ranks, itself included
  SimulatedRank simulated;
  StepTimes times;            // of the last step
  std::vector<Event> events;  // of all steps
  // For a step: bytes through host memory, and how much longer calls took because others shared memory, link
  // or cores.
  double host_bytes = 0, slowed = 0;
  // How much longer kernels take in a step because of concurrent collectives; events do not contain it.
  double slowed_by_exchanges = 0;
};

struct Simulation {
  // From the end of the last but one step to the end of the last, including the largest slowed_by_exchanges
  // of a rank.
  double step_seconds = 0;
  double all_seconds = 0;  // to the end of the last step
  std::vector<RankTimes> ranks;

  // Returns that of the rank with the most, at most the step: steps overlap.
  double exposed_communication() const;
  double slowed_by_exchanges() const;
};

// Throws an Error of code hang if no queue can go on, naming ranks, queues and calls that wait for each
// other. Programs and plans must outlive the result.
Simulation simulate(std::span<const SimulatedRank> ranks, CostModel& cost_model,
                    const SimulateOptions& options = {});

// ------------------------------------------------------------------- sharing
// Simulates calls that share a memory or a link. If there is enough for all, each gets what it needs;
// otherwise each gets the same share of its load. So a copy with a small load never waits for an update that
// could use everything. Example: loads of 40 and 20 GB/s on a memory of 30 GB/s: both run at half speed.

class Sharing {
 public:
  // Returns the number of a carrier with that bandwidth. Carriers are applied in the order in which they were
  // added: a call that one slows down needs less of the next.
  std::size_t add_carrier(double bytes_per_second);

  // Load of a call on a carrier.
  struct Load {
    std::size_t carrier = 0;
    double bytes_per_second = 0;  // if nothing delays the call
    double times = 1;             // identical calls at the same time
    bool is_held_up = true;       // false: it takes from others but is never delayed
  };
  // Starts a call that takes `seconds` if nothing delays it. `at` must not be before the last result of
  // next().
  void begin(std::size_t tag, double at, double seconds, std::vector<Load> loads);

  struct Ended {
    std::size_t tag = 0;
    double at = 0;
  };
  // Returns the next call to end, or nothing.
  std::optional<Ended> next();

 private:
  struct Work {
    std::size_t tag = 0;
    double since = 0;  // when it got its present speed
    double left = 0;   // seconds left at full speed
    double speed = 1;
    std::vector<Load> loads;

    double end() const { return since + left / speed; }
  };

  std::vector<Work*> going_on();
  void set_speeds(std::span<Work* const> works) const;

  std::vector<double> carriers_;
  std::vector<Work> works_;
  double now_ = 0;
};

}  // namespace prun
