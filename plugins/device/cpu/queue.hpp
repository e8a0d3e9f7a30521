// Is a queue of the CPU device: launches run at once, on the thread that feeds the queue and on its workers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prun/device.hpp"
#include "worker_pool.hpp"

namespace prun::cpu {

class CpuQueue {
 public:
  // A queue that only copies has one thread.
  CpuQueue(std::string_view name, std::int32_t threads, Binding binding, std::chrono::microseconds spin);
  // Must be called when the feeding thread is done with the queue and nobody waits for it. If that thread is
  // the caller, it may use the cores again that it had before attach().
  ~CpuQueue();
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  const Binding& binding() const { return pool_.binding(); }

  // Names the calling thread, which will feed this queue, and keeps it on its core.
  void attach();
  using Launches = std::span<const Launch>;
  // The result stays where it is as long as the queue lives.
  const Launches& bind(Launches launches);
  void run(const Launches& launches);

 private:
  std::string name_;
  WorkerPool pool_;
  Workers workers_;
  std::deque<Launches> works_;
  pid_t submitter_ = 0;  // the thread that attached, once it was pinned
  std::vector<int> submitter_cores_;
};

}  // namespace prun::cpu
