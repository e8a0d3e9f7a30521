// Decides how a thread waits for messages: it spins a little, then sleeps. A thread that spins on a contended
// core is put off it for a whole time slice; one that finds its core contended sleeps at once for its next
// waits.
#pragma once

#include <sched.h>

#include <chrono>

namespace prun::ucx {

class Idle {
 public:
  explicit Idle(std::chrono::microseconds limit) : limit_(limit) {}

  // Must be called when something happened: the next wait starts anew.
  void reset() { spinning_ = false; }

  // Must be called each time nothing happened. Returns true to look again, false to sleep.
  bool spin() {
    const auto now = Clock::now();
    if (!spinning_) {
      if (limit_.count() == 0 || (waits_to_sleep_ > 0 && waits_to_sleep_-- > 0)) return false;
      spinning_ = true;
      start_ = last_ = now;
    }
    if (now - last_ > contended_after) waits_to_sleep_ = contended_waits;
    last_ = now;
    if (waits_to_sleep_ > 0 || now - start_ >= limit_) return spinning_ = false;
    if (now - start_ >= polite_after) sched_yield();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds polite_after{5};
  static constexpr std::chrono::microseconds contended_after{100};
  static constexpr int contended_waits = 100;

  std::chrono::microseconds limit_;
  Clock::time_point start_, last_;
  bool spinning_ = false;
  int waits_to_sleep_ = 0;
};

}  // namespace prun::ucx
