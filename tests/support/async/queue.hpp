// Is a queue of limited depth that runs its work later, on a thread of its own, after random delays.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "memory.hpp"
#include "prun/device.hpp"
#include "stream.hpp"

namespace prun::async {

// Counts how often it was recorded, and how many of those records have been reached.
struct RecordedEvent {
  std::atomic<std::uint64_t> recorded{0}, reached{0};
};

struct Behaviour {
  std::int64_t depth = 4, delay_us = 0, seed = 1;
  std::int64_t fail_after = 0;  // counts pieces of work of a queue; 0: never
};

// Holds the failure of the whole device, once anything of it has failed.
class Failure {
 public:
  bool happened() const { return happened_; }
  void take(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = error;
    happened_ = true;
  }
  void check() const {
    const std::scoped_lock lock(mutex_);
    if (error_) throw Error(*error_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> happened_ = false;
};

// Is rung when a queue of the device has come further. The host and other devices do not ring it, and so who
// waits looks again after a while.
class Bell {
 public:
  void ring() {
    { const std::scoped_lock lock(mutex_); }
    rung_.notify_all();
  }
  template <class Ready>
  void wait(std::chrono::microseconds look_again_after, Ready&& ready) {
    std::unique_lock lock(mutex_);
    while (!ready()) rung_.wait_for(lock, look_again_after);
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
};

class AsyncQueue final : public Stream {
 public:
  AsyncQueue(std::string name, const ShiftedMemory& memory, const Behaviour& behaviour, Failure& failure,
             Bell& bell)
      : name_(std::move(name)),
        memory_(memory),
        behaviour_(behaviour),
        failure_(failure),
        bell_(bell),
        random_(static_cast<unsigned>(behaviour.seed) +
                static_cast<unsigned>(std::hash<std::string>{}(name_))),
        thread_([this] { run(); }) {}
  ~AsyncQueue() {
    {
      // Without the lock, the thread could miss this between its look at `ended_` and its sleep.
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  void enqueue(std::function<void()> work) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return ended_ || failure_.happened() || work_.size() < static_cast<std::size_t>(behaviour_.depth);
    });
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void* real(const void* address) override { return memory_.real(address); }

  // Must be called within the queue's work: holds it until ready() or until nothing matters any more.
  template <class Ready>
  void hold_until(Ready&& ready) {
    bell_.wait(std::chrono::microseconds(100), [&] { return ready() || ended_ || failure_.happened(); });
  }

  void check() const { failure_.check(); }

 private:
  void run() {
    for (std::int64_t done = 1;; ++done) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
      }
      if (!failure_.happened()) try_to(work, done);
      const std::scoped_lock lock(mutex_);
      work_.pop_front();
      changed_.notify_all();
    }
  }

  void try_to(const std::function<void()>& work, std::int64_t number) {
    try {
      delay();
      if (number == behaviour_.fail_after)
        throw_error(ErrorCode::internal, "queue ", name_, ": injected failure");
      work();
    } catch (const Error& error) {
      failure_.take(error);
    }
  }

  // Delays some of the work for longer, and not all of it a little: to sleep at all takes some 50 us.
  void delay() {
    constexpr unsigned one_of = 4;
    if (behaviour_.delay_us > 0 && random_() % one_of == 0)
      std::this_thread::sleep_for(
          std::chrono::microseconds(random_() % (one_of * static_cast<unsigned>(behaviour_.delay_us))));
  }

  std::string name_;
  const ShiftedMemory& memory_;
  Behaviour behaviour_;
  Failure& failure_;
  Bell& bell_;
  std::minstd_rand random_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace prun::async
