// A thread that goes to sleep announces itself and then reads the counter; publish() writes the counter and
// then checks for sleepers. Both are in one total order (seq_cst), so at least one of them sees the other.
#include "execute/ticket.hpp"

#include <thread>

namespace prun {
namespace {

// A thread that waits for a ticket runs beside threads that compute: it must not take a core from them for
// long.
constexpr std::chrono::microseconds longest_spin{20};
constexpr std::chrono::microseconds poll_every{30};

}  // namespace

void Ticket::publish(std::uint64_t ticket) noexcept {
  counter_.store(ticket, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  bell_.fetch_add(1, std::memory_order_release);
  futex_wake_all(bell_);
}

void Ticket::await(std::uint64_t ticket) noexcept {
  if (Spinner(longest_spin).spin_until([&] { return reached(ticket); })) return;
  while (polled_ && !reached(ticket)) std::this_thread::sleep_for(poll_every);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t rung = bell_.load(std::memory_order_acquire);
    if (reached(ticket)) break;
    futex_sleep(bell_, rung);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace prun
