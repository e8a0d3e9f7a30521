// States how far a queue is: a counter that grows, with one writer and any number of waiters. The thread that
// feeds a blocking queue publishes it and wakes sleepers. An asynchronous device writes it and wakes no
// thread, so its waiters poll.
#pragma once

#include <cstdint>

#include "prun/device.hpp"
#include "prun/waiting.hpp"

namespace prun {

// ------------------------------------------------------------------- ticket

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

// ------------------------------------------------------------------- save gate
// Tracks how far the save under way is: calls that would overwrite what it has not read yet wait for it. A
// save may go on for many steps, and steps that it does not delay are not counted: so waits for it count the
// saves that were begun, not steps.

class SaveGate {
 public:
  // `reads` counts the plan's reads.
  explicit SaveGate(std::size_t reads) : reads_(reads), ticket_(counter_, false) {}
  SaveGate(const SaveGate&) = delete;
  SaveGate& operator=(const SaveGate&) = delete;

  // Says whether steps may go on beside a save.
  bool holds_back() const { return reads_ > 0; }
  // Closes the gate, while no step runs and once the save before has let all pass: from now on nothing counts
  // as read.
  void close() { ++begun_; }
  // Notes that this read and all before it are done; the saver calls it. Reads grow.
  void pass(std::int32_t read) noexcept { ticket_.publish(ticket_of(read)); }
  // Opens the gate: nothing is to be read any more.
  void open() noexcept {
    if (begun_ > 0) ticket_.publish(begun_ * reads_);
  }

  // Blocks a thread that runs queues until the read is done, if a save is under way.
  void await(std::int32_t read) noexcept {
    if (begun_ > 0) ticket_.await(ticket_of(read));
  }
  // Returns a number that grows for as long as the save advances.
  std::uint64_t progress() const noexcept { return counter_.load(); }

 private:
  std::uint64_t ticket_of(std::int32_t read) const {
    return (begun_ - 1) * reads_ + static_cast<std::uint64_t>(read) + 1;
  }

  const std::uint64_t reads_;
  std::uint64_t begun_ = 0;  // written while no step runs: starting a step tells its queues
  Counter counter_{0};
  Ticket ticket_;
};

}  // namespace prun
