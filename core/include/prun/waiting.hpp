// SPDX-License-Identifier: Apache-2.0
// How a thread waits for another: it spins briefly, then sleeps on a futex, without mutex or memory.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace prun {

// Tells the core that this is a spin loop.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield" ::: "memory");
#endif
}

// Spins before a sleep, for one waiting thread. A thread that spins on a core that others need is preempted
// for a whole time slice, and delays what it waits for; a sleeping thread is scheduled at once. So a spinner
// that finds its core contended does not spin for its next waits.
class Spinner {
 public:
  explicit Spinner(std::chrono::microseconds limit) : limit_(limit) {}

  // Spins until ready() or for `limit`; returns what ready() said last.
  template <class Ready>
  bool spin_until(Ready&& ready) noexcept {
    if (ready()) return true;
    if (limit_.count() <= 0) return false;
    if (waits_to_sleep_ > 0) return --waits_to_sleep_, false;
    const auto start = Clock::now();
    for (auto last = start;;) {
      const bool done = spin_briefly(ready);
      const auto now = Clock::now();
      if (now - last >= contended_after) waits_to_sleep_ = contended_waits;
      if (done) return true;
      if (waits_to_sleep_ > 0 || now - start >= limit_) return ready();
      if (now - start >= polite_after) sched_yield();
      last = now;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds polite_after{5};
  // This is far longer than a few pauses or an interrupt take, and far shorter than a time slice.
  static constexpr std::chrono::microseconds contended_after{100};
  static constexpr int contended_waits = 1000;

  template <class Ready>
  static bool spin_briefly(Ready& ready) noexcept {
    for (int i = 0; i < 16; ++i) {
      pause_core();
      if (ready()) return true;
    }
    return false;
  }

  std::chrono::microseconds limit_;
  int waits_to_sleep_ = 0;
};

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

// Calls the kernel directly; all waiters are in one process, so the private kind suffices.
inline void futex(const FutexWord& word, int operation, std::uint32_t value) noexcept {
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}
// Sleeps while `word` holds `expected`; it may wake for no reason, so callers check again.
inline void futex_sleep(const FutexWord& word, std::uint32_t expected) noexcept {
  futex(word, FUTEX_WAIT_PRIVATE, expected);
}
inline void futex_wake_one(const FutexWord& word) noexcept { futex(word, FUTEX_WAKE_PRIVATE, 1); }
inline void futex_wake_all(const FutexWord& word) noexcept {
  futex(word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max());
}

}  // namespace prun
