// Holds the runs of operations that were started and are not finished: numbers them as the other members do,
// gives them scratch in the order in which they were started, and retires those that are done.
#pragma once

#include <atomic>
#include <vector>

#include "farewell.hpp"
#include "library.hpp"
#include "scratch.hpp"

namespace prun::ucx {

class RunQueue {
 public:
  RunQueue(std::int32_t rank, std::int32_t size, const Tuning& tuning);

  // Makes what an operation needs, so that add() allocates nothing.
  void prepare(const CommOp& op);
  void add(const CommOp& op);
  // Must be called when a step has been done: those that waited for it alone become ready.
  void complete(RunningStep& step) { step.run->finish(step, ready_); }
  void retire_done();

  // Calls `execute` for each step that is ready, and for those that become ready meanwhile.
  template <class Execute>
  void execute_ready(Execute&& execute) {
    for (std::size_t i = 0; i < ready_.size(); ++i) execute(*ready_[i]);
    ready_.clear();
  }

  bool has_ready() const { return !ready_.empty(); }
  bool has_steps() const { return steps_ > 0; }
  // Returns the runs that were launched: those that wait for scratch are not among them.
  const std::vector<Run*>& active() const { return active_; }
  // Returns what this member has started so far, as it tells the other one when it leaves.
  Farewell started_with(std::int32_t member) const;

  // May be called by any thread.
  CommCounters retired() const { return {operations_, bytes_sent_, bytes_received_}; }
  void forget_retired() { operations_ = bytes_sent_ = bytes_received_ = 0; }

 private:
  struct Peer {
    std::uint32_t sends = 0, receives = 0;
  };

  void number(Run& run, const CommOp& op);
  bool launch(Run& run);
  void retire(Run& run);

  Library library_;
  ScratchPool scratch_;
  std::vector<Peer> peers_;
  std::uint32_t collectives_ = 0;
  std::vector<Run*> active_;
  std::vector<Run*> waiting_;  // wait for scratch, in order
  std::vector<RunningStep*> ready_;
  std::size_t steps_ = 0;  // counts steps of all runs that are not done
  std::atomic<std::uint64_t> operations_ = 0, bytes_sent_ = 0, bytes_received_ = 0;
};

}  // namespace prun::ucx
