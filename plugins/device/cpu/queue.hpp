// A queue of the CPU device: what is launched runs at once, on the thread that feeds it and its workers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prun/device.hpp"
#include "waiting.hpp"
#include "worker_pool.hpp"

namespace prun::cpu {

class CpuQueue {
 public:
  // A queue that only copies has one thread.
  CpuQueue(std::string_view name, std::int32_t threads, Binding binding, std::chrono::microseconds spin);
  // The feeding thread is done with it and nobody waits for it. If that thread is the caller, it may use the
  // cores again that it had before attach().
  ~CpuQueue();
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  const Binding& binding() const { return pool_.binding(); }

  // Names the calling thread, which will feed this queue, and keeps it on its core.
  void attach();
  void launch(std::span<const Launch> launches);
  // Everything launched so far has run: publishes `ticket`. Tickets grow.
  void signal(std::uint64_t ticket);
  // Holds the calling thread, which feeds this queue, until `other` has reached the ticket.
  void wait(CpuQueue& other, std::uint64_t ticket);
  // Holds the calling thread until this queue has reached the ticket.
  void await(std::uint64_t ticket) noexcept;

 private:
  bool reached(std::uint64_t ticket) const noexcept {
    return ticket_.load(std::memory_order_seq_cst) >= ticket;
  }

  std::string name_;
  std::chrono::microseconds spin_limit_;
  WorkerPool pool_;
  Workers workers_;
  pid_t feeder_ = 0;  // the thread that attached, once it was pinned
  std::vector<int> feeder_cores_;

  alignas(64) std::atomic<std::uint64_t> ticket_ = 0;
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;
  FutexWord bell_ = 0;  // rung when a ticket is published while somebody sleeps
};

}  // namespace prun::cpu
