// Tracks what is known to be done when a call begins: vector clocks over a plan's queues. Example: queue 1's
// call 3 waits for queue 0's call 5. It then knows that calls 0 to 5 of queue 0 are done, and all that call 5
// knew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Position of a call in its queue, over all steps. Negative: before the first step.
struct When {
  std::int32_t queue = -1;
  std::int64_t ticket = 0;
};

// A call knows what its waits and the call before it in the queue knew.
class QueueClocks {
 public:
  // Takes the calls of a step by queue.
  explicit QueueClocks(std::vector<std::int64_t> calls);

  void begin_step(std::int64_t step);
  // Throws an Error if a call waits for one that has not begun.
  void begin_call(std::int32_t queue, std::int32_t position, std::span<const Wait> waits);

  const When& now() const { return now_; }
  bool is_done(const When& earlier) const {
    return earlier.ticket < 0 || clocks_[now_.queue][earlier.queue] >= earlier.ticket;
  }
  // Returns that of this step.
  std::int64_t first_ticket(std::int32_t queue) const { return step_ * calls_[queue]; }
  // Returns it relative to that; all that is older than so many steps is equally long ago.
  std::int64_t relative(const When& when, std::int64_t steps) const {
    return std::max(when.ticket - first_ticket(when.queue), -steps * calls_[when.queue] - 1);
  }

 private:
  using Clock = Numbered<std::int64_t>;  // latest ticket known to be done, by queue

  void join(Clock& clock, const Wait& wait);
  Clock& clock_at(std::int32_t queue, std::int64_t ticket);

  Numbered<std::int64_t> calls_;
  std::int64_t step_ = 0;
  When now_;
  Numbered<Clock> clocks_;             // by queue
  Numbered<Numbered<Clock>> history_;  // by queue and ticket
};

}  // namespace prun
