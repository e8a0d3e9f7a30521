// Runs plans in virtual time. Each queue goes through its calls in order and waits as the plan says; an
// exchange begins when all who take part have reached it; a send meets the receive that has the same number
// between the same two ranks. Calls that move bytes through the same link or the host's memory at the same
// time share what it carries: a link as much as the fastest of its rank's calls that use it. So do calls that
// compute on cores of a host of which there are too few.
//
// Ranks that cannot be distinguished (same plan, same company) are simulated once, however many they are.
#pragma once

#include <functional>

#include "estimate/prices.hpp"
#include "plan/proof/events.hpp"
#include "plan/proof/simulated_rank.hpp"

namespace prun {

struct SimulateOptions {
  std::int64_t steps = 3;
  // The host starts a step as soon as no more than so many are started and not done, as Trainer::run() does.
  std::int64_t running = 2;
  // So many ranks of consecutive numbers are on a host, whose memory they share; 0: all.
  std::int64_t ranks_of_host = 0;
  // So many cores of a host are shared by its ranks, of which each call of a queue takes `cores_of`; 0, or an
  // empty function: each has cores of its own.
  double cores_of_host = 0;
  double exchange_delay = 0;  // seconds that each exchange takes longer, as where its threads wait for a core
  std::function<double(const QueueInfo&)> cores_of = {};
  // Says for which queues the comm plugin enqueues: it gets the exchanges of a call at once, and they run on
  // the device beside its kernels. If it is empty, there are none.
  std::function<bool(const QueueInfo&)> enqueued = {};
  // Says, for a save that is begun with the first step, when its reads are done, by rank, in seconds from
  // then. If it is empty, there is no save.
  std::function<std::vector<double>(const SimulatedRank&)> save_reads = {};
  // Says which queues one thread fills for all of them in the order of the plan: what blocks one delays what
  // comes after it. If it is empty, there are none.
  std::function<bool(const QueueInfo&)> fed = {};
};

// Describes one rank, for all that are like it.
struct RankTimes {
  int rank = 0;
  std::int64_t alike = 1;  // number of such ranks, itself included
  SimulatedRank simulated;
  StepTimes times;            // times of the last step
  std::vector<Event> events;  // events of all steps
  // These are, for a step, the bytes that it moves through memory of the host, and how much longer its calls
  // took because others used the same memory, link or cores.
  double host_bytes = 0, slowed = 0;
  // The rank's kernels take so much longer in the step because it exchanges beside them; events do not
  // contain this.
  double slowed_by_exchanges = 0;
};

struct Simulation {
  // This is the time from the end of the step before to the end of the last one, with what the rank that
  // exchanges beside its kernels for longest loses by that.
  double step_seconds = 0;
  double all_seconds = 0;  // time to the end of the last one
  std::vector<RankTimes> ranks;

  // Returns the exposed communication of the rank with the most, the step at most: steps overlap.
  double exposed_communication() const;
  double slowed_by_exchanges() const;
};

// Simulates. Throws an Error of code hang when no queue can go on, naming the ranks, queues and calls that
// wait for each other. Programs and plans must outlive the result.
Simulation simulate(std::span<const SimulatedRank> ranks, Prices& prices,
                    const SimulateOptions& options = {});

}  // namespace prun
