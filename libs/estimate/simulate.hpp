// Runs plans in virtual time, to predict a step and what it exposes. Each queue runs its calls in order and
// waits as the plan states. A collective starts when all members have reached it; a send meets the receive
// with the same number between the same ranks. Concurrent calls share links, host memory, drives and cores.
//
// Ranks with the same plan and equivalent peers are simulated once. Example: 512 data-parallel ranks of a
// pipeline of 8 stages are 8 simulated ranks.
#pragma once

#include <functional>

#include "estimate/prices.hpp"
#include "plan/proof/events.hpp"
#include "plan/proof/simulated_rank.hpp"

namespace prun {

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
  std::function<bool(const QueueInfo&)> fed = {};
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
Simulation simulate(std::span<const SimulatedRank> ranks, Prices& prices,
                    const SimulateOptions& options = {});

}  // namespace prun
