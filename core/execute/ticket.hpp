// States how far a queue is: a counter that grows, with one writer and any number of waiters. The thread that
// feeds a blocking queue publishes it and wakes sleepers. An asynchronous device writes it and wakes no
// thread, so its waiters poll.
#pragma once

#include "prun/device.hpp"
#include "prun/waiting.hpp"

namespace prun {

class Ticket {
 public:
  // `polled` says that a device writes the counter, which must outlive this.
  Ticket(Counter& counter, bool polled) : counter_(counter), polled_(polled) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  Counter& counter() const { return counter_; }
  bool reached(std::uint64_t ticket) const noexcept {
    return counter_.load(std::memory_order_seq_cst) >= ticket || given_up_.load(std::memory_order_relaxed);
  }
  // Publishes a ticket; tickets grow.
  void publish(std::uint64_t ticket) noexcept;
  // Blocks the calling thread until the ticket has been reached.
  void await(std::uint64_t ticket) noexcept;
  // Makes every ticket count as reached from now on. Any thread may call it.
  void give_up() noexcept { given_up_.store(true); }

 private:
  Counter& counter_;
  const bool polled_;
  std::atomic<bool> given_up_ = false;
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;
  FutexWord bell_ = 0;  // rung when a ticket is published while a thread sleeps
};

}  // namespace prun
