// Runs the queues that block (the CPU's kernels, exchanges that block their caller): each has a thread of its
// own, which goes through the queue's calls of a step.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "execute/binding.hpp"
#include "execute/rank_queues.hpp"
#include "execute/ticket.hpp"

namespace prun {

// ------------------------------------------------------------ poison

// Does what run.poison adds around each kernel: fences that must stay as they are, and NaN in bytes that are
// not read again. The host must be able to write the device's memory.
class Poison {
 public:
  // All of these must outlive it; the fences of the memory are filled.
  Poison(const Program& program, const Plan& plan, const PlanMemory& memory);

  // Fills the fences of a kernel. The plan's waits cover fences too, so nothing else touches them meanwhile.
  void before(const BoundPiece& piece, std::size_t index) const;
  // Returns an error if the kernel has written into one of its fences, or into the memory's.
  Status after(const Call& call, const BoundPiece& piece, std::size_t index) const;
  // Overwrites dead bytes of a launch or exchange.
  static void spoil(const BoundPiece& piece, std::size_t index);

 private:
  Status trespass(const Call& call, std::size_t index, const Fence* fence) const;

  const Program& program_;
  const Plan& plan_;
  const PlanMemory& memory_;
};

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
  void run_call(QueueRun& queue, const BoundCall& bound, std::int64_t iteration);
  void await(QueueRun& queue, const BoundCall& bound, std::int64_t iteration);
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
