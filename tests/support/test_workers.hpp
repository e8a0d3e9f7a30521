// Implements a small Workers for tests and benchmarks: threads that spin for work, then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "prun/workers.hpp"

namespace prun::test {

class TestWorkers {
 public:
  explicit TestWorkers(std::int32_t count) : count_(count) {
    for (std::int32_t thread = 1; thread < count; ++thread)
      threads_.emplace_back([this, thread](std::stop_token stop) { serve(thread, stop); });
  }
  ~TestWorkers() {
    for (std::jthread& thread : threads_) thread.request_stop();
    begin_round();
  }
  TestWorkers(const TestWorkers&) = delete;
  TestWorkers& operator=(const TestWorkers&) = delete;

  Workers workers() { return {this, count_, &TestWorkers::run}; }

 private:
  using Body = void (*)(void* context, std::int64_t index);

  static void run(void* pool, std::int64_t tasks, Body body, void* context) {
    auto& self = *static_cast<TestWorkers*>(pool);
    self.tasks_ = tasks, self.body_ = body, self.context_ = context;
    self.busy_.store(self.count_ - 1, std::memory_order_relaxed);
    self.begin_round();
    self.work(0);
    wait_while(self.busy_, [](std::int32_t busy) { return busy != 0; });
  }

  void begin_round() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void serve(std::int32_t thread, std::stop_token stop) {
    for (std::int64_t round = 1;; ++round) {
      wait_while(round_, [round](std::int64_t begun) { return begun < round; });
      if (stop.stop_requested()) return;
      work(thread);
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  void work(std::int32_t thread) const {
    for (std::int64_t index = thread; index < tasks_; index += count_) body_(context_, index);
  }

  // Spins a little first, and then sleeps, so that another thread may have the core.
  template <class T, class Condition>
  static void wait_while(const std::atomic<T>& number, Condition holds) {
    for (int spins = 0; spins < 10'000; ++spins)
      if (!holds(number.load(std::memory_order_acquire))) return;
    for (T now; holds(now = number.load(std::memory_order_acquire));)
      number.wait(now, std::memory_order_acquire);
  }

  std::int32_t count_;
  std::int64_t tasks_ = 0;
  Body body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::int64_t> round_ = 0;
  std::atomic<std::int32_t> busy_ = 0;
  std::vector<std::jthread> threads_;  // must be last: they stop before the rest is destroyed
};

}  // namespace prun::test
