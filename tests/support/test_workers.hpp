// A small Workers for tests and benchmarks: threads that spin for work, then yield.
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
  TestWorkers(const TestWorkers&) = delete;
  TestWorkers& operator=(const TestWorkers&) = delete;

  Workers workers() { return {this, count_, &TestWorkers::run}; }

 private:
  using Body = void (*)(void* context, std::int64_t index);

  static void run(void* pool, std::int64_t tasks, Body body, void* context) {
    auto& self = *static_cast<TestWorkers*>(pool);
    self.tasks_ = tasks, self.body_ = body, self.context_ = context;
    self.busy_.store(self.count_ - 1, std::memory_order_relaxed);
    self.round_.fetch_add(1, std::memory_order_release);
    self.work(0);
    wait_until([&] { return self.busy_.load(std::memory_order_acquire) == 0; });
  }

  void serve(std::int32_t thread, std::stop_token stop) {
    for (std::int64_t round = 1;; ++round) {
      wait_until([&] { return round_.load(std::memory_order_acquire) >= round || stop.stop_requested(); });
      if (round_.load(std::memory_order_acquire) < round) return;
      work(thread);
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

  void work(std::int32_t thread) const {
    for (std::int64_t index = thread; index < tasks_; index += count_) body_(context_, index);
  }

  template <class Condition>
  static void wait_until(Condition condition) {
    for (int spins = 0; !condition(); ++spins)
      if (spins > 10'000) std::this_thread::yield();
  }

  std::int32_t count_;
  std::int64_t tasks_ = 0;
  Body body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::int64_t> round_ = 0;
  std::atomic<std::int32_t> busy_ = 0;
  std::vector<std::jthread> threads_;  // last: they stop before the rest goes
};

}  // namespace prun::test
