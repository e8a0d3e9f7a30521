// Holds the threads behind prun::Workers: started once, they spin for work and sleep when there is none.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "prun/waiting.hpp"
#include "prun/workers.hpp"

namespace prun::cpu {

// ------------------------------------------------------------------- worker pool

// Says where a pool's threads may run.
struct Binding {
  std::vector<int> cores;
  // says that thread i stays on cores[i]; otherwise each may use all of them.
  bool pinned = false;
};

class WorkerPool {
 public:
  using Body = void (*)(void* context, std::int64_t index);

  // Starts count - 1 threads; the caller of run() is thread 0 and binds itself (bind_caller). A pinned
  // binding has a core for each thread. Throws unsupported when the system refuses a thread.
  WorkerPool(std::int32_t count, Binding binding, std::chrono::microseconds spin);
  // Must not be called while a run() is under way.
  ~WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::int32_t count() const { return count_; }
  const Binding& binding() const { return binding_; }
  // Returns workers that borrow this pool.
  Workers workers();
  // This keeps the contract of Workers::run. One thread at a time calls it.
  void run(std::int64_t tasks, Body body, void* context) noexcept;

 private:
  struct Job {
    std::int64_t tasks = 0;
    Body body = nullptr;
    void* context = nullptr;
    std::int32_t threads = 0;  // counts those that take part, the caller included
  };

  // Is a started thread with the word through which it is given work; the destructor stops and joins it.
  class alignas(64) Worker {
   public:
    Worker(WorkerPool& pool, std::int32_t index);
    ~Worker();
    void start() noexcept { tell(work); }

   private:
    enum State : std::uint32_t { idle, asleep, work, stop };

    void serve() noexcept;
    State await_order() noexcept;
    void tell(State order) noexcept;

    FutexWord state_ = idle;
    WorkerPool& pool_;
    std::int32_t index_;
    Spinner spinner_;
    std::thread thread_;
  };

  void pass_on(std::int32_t thread) noexcept;
  void work_share(std::int32_t thread) const noexcept;
  void report_done() noexcept;
  void await_others() noexcept;

  std::int32_t count_;
  Binding binding_;
  std::chrono::microseconds spin_limit_;
  Spinner caller_spinner_;
  alignas(64) Job job_;  // is written by the caller while no worker works, read by those it started
  // Counts the workers that have not finished, and says whether the caller sleeps until the last of them has.
  alignas(64) FutexWord unfinished_ = 0;
  // Thread i is workers_[i - 1]. This is the last member: the threads stop before the rest is destroyed.
  alignas(64) std::vector<std::unique_ptr<Worker>> workers_;
};

// ------------------------------------------------------------------- cores
// Finds which cores this process may use, and keeps a thread on some of them.

// Returns the cores in the calling thread's affinity mask, ascending; never empty.
std::vector<int> usable_cores();

// Throws unsupported when the system refuses.
void keep_thread_on(pthread_t thread, std::span<const int> cores);

}  // namespace prun::cpu
