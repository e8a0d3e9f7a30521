// Says which steps the queues of a rank may run. Between two steps a thread that runs queues sleeps, if the
// next has not been started yet, on the word that says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Numbers the rounds that queues run: each is a step's, or ends steps that overlap.
class Steps {
 public:
  struct Run {
    Round round;
    std::int64_t step = 0;  // step whose calls it has, or the next one if it ends steps

    // Says whether the step begins in this round, in which it is measured.
    bool begins_step() const { return round.ended == 0; }
  };

  // At most so many steps may be started and not finished.
  explicit Steps(std::int64_t running) : running_(running), runs_(static_cast<std::size_t>(4 * running)) {}

  // Starts a round; the thread that holds the executor calls it.
  void start(Round round);
  // Finishes the earliest step that is not finished, and returns its round.
  std::int64_t finish();
  // Says that no more steps will come.
  void end();
  std::int64_t started() const { return rounds_; }

  // Blocks a thread that runs queues until the round may run; returns false if it never will.
  bool may_run(std::int64_t round) const;
  // Returns a round, which must be one that may run, or that ran not long ago.
  const Run& run(std::int64_t round) const { return runs_[static_cast<std::size_t>(round) % runs_.size()]; }

 private:
  // This counts the rounds that queues may run; its complement means in addition that no more will come.
  std::atomic<std::int64_t> may_run_{0};
  const std::int64_t running_;
  std::vector<Run> runs_;
  std::int64_t rounds_ = 0, looked_at_ = 0;  // rounds started; rounds that are finished
  std::int64_t steps_ = 0, finished_ = 0;
};

}  // namespace prun
