// Tracks what is known to be done when a call begins, by vector clocks over the queues of a plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// Says when something happened: the position of a call in its queue, over all steps. A negative ticket means
// before the first step.
struct When {
  std::int32_t queue = -1;
  std::int64_t ticket = 0;
};

// Calls of a queue begin one after the other. What a call waits for, and all that was known to be done when
// that began, is done when it begins.
class QueueClocks {
 public:
  // Takes the number of calls in a step, by queue.
  explicit QueueClocks(std::vector<std::int64_t> calls);

  void begin_step(std::int64_t step);
  // Throws an Error where a call waits for one that has not begun.
  void begin_call(std::int32_t queue, std::int32_t position, std::span<const Wait> waits);

  // Returns the current call.
  const When& now() const { return now_; }
  // Says whether that call is known to be done.
  bool is_done(const When& earlier) const {
    return earlier.ticket < 0 || clocks_[now_.queue][earlier.queue] >= earlier.ticket;
  }
  // Returns the ticket of the first call of this step.
  std::int64_t first_ticket(std::int32_t queue) const { return step_ * calls_[queue]; }

 private:
  using Clock = Numbered<std::int64_t>;  // latest ticket that is known to be done, by queue

  void join(Clock& clock, const Wait& wait);
  Clock& clock_at(std::int32_t queue, std::int64_t ticket);

  Numbered<std::int64_t> calls_;
  std::int64_t step_ = 0;
  When now_;
  Numbered<Clock> clocks_;             // clocks by queue
  Numbered<Numbered<Clock>> history_;  // clocks by queue and ticket
};

}  // namespace prun
