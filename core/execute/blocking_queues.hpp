// Runs the queues that block (the CPU's kernels, exchanges that block their caller): each has a thread of its
// own, which goes through the queue's calls of a step.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "execute/poison.hpp"
#include "execute/rank_queues.hpp"
#include "execute/save_gate.hpp"
#include "execute/steps.hpp"
#include "execute/watchers.hpp"

namespace prun {

class BlockingQueues {
 public:
  // All of these must outlive the queues.
  BlockingQueues(RankQueues& queues, const Steps& steps, const Watchers& watchers,
                 const std::optional<Poison>& poison, SaveGate* saves)
      : queues_(queues), steps_(steps), watchers_(watchers), poison_(poison), saves_(saves) {}

  void start();
  // Joins the threads; it is called once no more steps come.
  void join();

 private:
  void run(QueueRun& queue);
  void run_call(QueueRun& queue, const BoundCall& bound, std::int64_t round);
  void await(QueueRun& queue, const BoundCall& bound, std::int64_t round);
  Status launch(QueueRun& queue, const Call& call, const BoundSide& side, std::int64_t step);
  Status exchange(QueueRun& queue, const BoundPiece& piece);
  Status exchange(QueueRun& queue, const CommOp& op);

  RankQueues& queues_;
  const Steps& steps_;
  const Watchers& watchers_;
  const std::optional<Poison>& poison_;
  SaveGate* const saves_;
  std::vector<std::thread> threads_;
};

}  // namespace prun
