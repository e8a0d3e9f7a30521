// The queues of asynchronous devices, which only take work: one thread, the feeder, fills all of them in the
// order of the plan, which puts every call behind those it waits for. So it never waits for a ticket: it
// tells the queue to wait.
#pragma once

#include <optional>
#include <thread>

#include "execute/gates.hpp"
#include "execute/rank_queues.hpp"
#include "execute/steps.hpp"
#include "execute/watchers.hpp"

namespace prun {

class QueueFeeder {
 public:
  // All of them must outlive it. `gates`: there are some where watchers are told of each kernel.
  QueueFeeder(RankQueues& queues, const Steps& steps, const Watchers& watchers, std::optional<Gates>& gates)
      : queues_(queues), steps_(steps), watchers_(watchers), gates_(gates) {}

  // Where there is something to feed.
  void start();
  // Once no more steps come.
  void join();

 private:
  void run();
  void feed_call(QueueRun& queue, const BoundCall& bound, std::int64_t step);
  static bool may_hold(const QueueRun& queue, const BoundCall& bound, const BoundSide& side);
  static Status feed_wait(QueueRun& queue, const BoundWait& waits, std::int64_t step);

  RankQueues& queues_;
  const Steps& steps_;
  const Watchers& watchers_;
  std::optional<Gates>& gates_;
  std::thread thread_;
};

}  // namespace prun
