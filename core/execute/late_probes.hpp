// Reports to probes on queues that run their work later. No thread of the host is present when it runs: the
// device notes times, which are reported once a step is done, and its tickets say how far a queue has come.
#pragma once

#include <cstdint>
#include <map>

#include "execute/rank_queues.hpp"
#include "execute/steps.hpp"
#include "execute/watchers.hpp"

namespace prun {

class LateProbes {
 public:
  // All of these must outlive the probes.
  LateProbes(const RankQueues& queues, const Steps& steps, const Watchers& watchers)
      : queues_(queues), steps_(steps), watchers_(watchers) {}

  // Sets the clocks; it is called before the first step, once stamps are bound.
  void set_clocks();
  // Reports progress, while steps run, to probes that are live.
  void report_progress();
  // Reports a step that is done to the other probes.
  void report_step(std::int64_t round) const;

 private:
  void report_call(QueueRun& queue, const BoundCall& bound, std::int64_t round) const;
  bool report_progress(QueueRun& queue) const;

  const RankQueues& queues_;
  const Steps& steps_;
  const Watchers& watchers_;
  std::map<const DeviceInterface*, double> clocks_;  // clock of probes at the moment when a device's is 0
};

}  // namespace prun
