// Which steps the queues of a rank may run. Between two of them whoever runs them sleeps, where the next has
// not been started yet, on the word that says so.
#pragma once

#include <atomic>
#include <cstdint>

namespace prun {

class Steps {
 public:
  // By the thread that holds the executor. At most two may be started and not finished.
  void start();
  // The earliest that is not finished, which now is.
  std::int64_t finish() { return finished_++; }
  // No more will come.
  void end();
  std::int64_t started() const { return steps_; }

  // By whoever runs them: holds the caller until the step may run; false: it will not.
  bool may_run(std::int64_t step) const;

 private:
  // Steps the queues may run; its complement: and no more will come.
  std::atomic<std::int64_t> may_run_{0};
  std::int64_t steps_ = 0, finished_ = 0;
};

}  // namespace prun
