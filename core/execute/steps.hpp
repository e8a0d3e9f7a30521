// Which steps the queues of a rank may run. Between two of them whoever runs them sleeps, where the next has
// not been started yet, on the word that says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Queues run rounds, which are numbered: each is a step's, or ends those that overlap.
class Steps {
 public:
  struct Run {
    Round round;
    std::int64_t step = 0;  // whose calls it has; of one that ends steps: the step that would come then

    // Says whether the step begins in this round, in which it is measured.
    bool begins_step() const { return round.ended == 0; }
  };

  // So many steps at most may be started and not finished.
  explicit Steps(std::int64_t running) : running_(running), runs_(static_cast<std::size_t>(4 * running)) {}

  // By the thread that holds the executor.
  void start(Round round);
  // The round of the earliest step that is not finished, which now is.
  std::int64_t finish();
  // No more will come.
  void end();
  std::int64_t started() const { return rounds_; }

  // By whoever runs them: holds the caller until the round may run; false: it will not.
  bool may_run(std::int64_t round) const;
  // The round must be one that may run, or that ran not long ago.
  const Run& run(std::int64_t round) const { return runs_[static_cast<std::size_t>(round) % runs_.size()]; }

 private:
  // Rounds the queues may run; its complement: and no more will come.
  std::atomic<std::int64_t> may_run_{0};
  const std::int64_t running_;
  std::vector<Run> runs_;
  std::int64_t rounds_ = 0, looked_at_ = 0;  // those whose step is finished, and that had none
  std::int64_t steps_ = 0, finished_ = 0;
};

}  // namespace prun
