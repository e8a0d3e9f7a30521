// In a run(), the caller writes the job and starts workers 1 and 2, worker i starts 2i+1 and 2i+2, so that
// many threads are under way after few steps. Each works its share and counts itself out; the last one wakes
// the caller if it sleeps. A worker's state word is exchanged, never just stored, when it is given work: the
// old value says whether it must be woken, so no wake-up is lost and no awake thread costs a system call.
#include "worker_pool.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

#include "prun/error.hpp"

namespace prun::cpu {
namespace {

// ------------------------------------------------------------------- cores
// Handles affinity masks of any size: the kernel refuses a mask smaller than its own.

class CoreSet {
 public:
  explicit CoreSet(int cores) : cores_(cores), set_(CPU_ALLOC(static_cast<std::size_t>(cores))) {
    if (!set_) throw_error(ErrorCode::unsupported, "device cpu: no memory for a mask of ", cores, " cores");
    CPU_ZERO_S(bytes(), set_.get());
  }
  std::size_t bytes() const { return CPU_ALLOC_SIZE(static_cast<std::size_t>(cores_)); }
  cpu_set_t* get() const { return set_.get(); }
  void add(int core) { CPU_SET_S(static_cast<std::size_t>(core), bytes(), set_.get()); }
  std::vector<int> list() const {
    std::vector<int> list;
    for (int core = 0; core < cores_; ++core)
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes(), set_.get())) list.push_back(core);
    return list;
  }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  int cores_;
  std::unique_ptr<cpu_set_t, Free> set_;
};

}  // namespace

std::vector<int> usable_cores() {
  constexpr int most_cores = 1 << 20;
  for (int size = 1024; size <= most_cores; size *= 2) {
    const CoreSet set(size);
    if (sched_getaffinity(0, set.bytes(), set.get()) == 0) return set.list();
    if (errno != EINVAL) break;
  }
  throw_error(ErrorCode::unsupported,
              "device cpu: the system does not say which cores this process may use (", std::strerror(errno),
              "); run it where sched_getaffinity is allowed");
}

void keep_thread_on(pthread_t thread, std::span<const int> cores) {
  CoreSet set(*std::max_element(cores.begin(), cores.end()) + 1);
  for (int core : cores) set.add(core);
  const int error = pthread_setaffinity_np(thread, set.bytes(), set.get());
  if (error)
    throw_error(ErrorCode::unsupported, "device cpu: cannot keep a thread on core ", cores.front(),
                cores.size() > 1 ? " and others" : "", " (", std::strerror(error), "); set pin = false");
}

namespace {

// ------------------------------------------------------------------- worker pool

constexpr std::uint32_t caller_asleep = 1u << 31;

void bind(std::thread& thread, std::int32_t index, const Binding& binding) {
  const std::span<const int> cores = binding.cores;
  keep_thread_on(thread.native_handle(),
                 binding.pinned ? cores.subspan(static_cast<std::size_t>(index), 1) : cores);
}

}  // namespace

WorkerPool::WorkerPool(std::int32_t count, Binding binding, std::chrono::microseconds spin)
    : count_(count),
      binding_(std::move(binding)),
      // Threads that share a core only delay each other by spinning.
      spin_limit_(static_cast<std::size_t>(count) > binding_.cores.size() ? std::chrono::microseconds(0)
                                                                          : spin),
      caller_spinner_(spin_limit_) {
  PRUN_CHECK(count >= 1, count);
  const auto cores = static_cast<std::int32_t>(binding_.cores.size());
  PRUN_CHECK(cores >= (binding_.pinned ? count : 1), count, " threads, ", cores, " cores");
  workers_.reserve(static_cast<std::size_t>(count - 1));
  for (std::int32_t index = 1; index < count; ++index)
    workers_.push_back(std::make_unique<Worker>(*this, index));
}

Workers WorkerPool::workers() {
  return {this, count_, [](void* pool, std::int64_t tasks, Body body, void* context) {
            static_cast<WorkerPool*>(pool)->run(tasks, body, context);
          }};
}

void WorkerPool::run(std::int64_t tasks, Body body, void* context) noexcept {
  if (tasks <= 1 || count_ == 1) {
    for (std::int64_t index = 0; index < tasks; ++index) body(context, index);
    return;
  }
  const auto threads = static_cast<std::int32_t>(std::min<std::int64_t>(tasks, count_));
  job_ = {tasks, body, context, threads};
  unfinished_.store(static_cast<std::uint32_t>(threads - 1), std::memory_order_relaxed);
  pass_on(0);
  work_share(0);
  await_others();
}

void WorkerPool::pass_on(std::int32_t thread) noexcept {
  for (std::int32_t next = 2 * thread + 1; next <= 2 * thread + 2 && next < job_.threads; ++next)
    workers_[static_cast<std::size_t>(next - 1)]->start();
}

void WorkerPool::work_share(std::int32_t thread) const noexcept {
  for (std::int64_t index = thread; index < job_.tasks; index += count_) job_.body(job_.context, index);
}

void WorkerPool::report_done() noexcept {
  const std::uint32_t before = unfinished_.fetch_sub(1, std::memory_order_acq_rel);
  if (before == (caller_asleep | 1)) futex_wake_one(unfinished_);
}

void WorkerPool::await_others() noexcept {
  if (caller_spinner_.spin_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  std::uint32_t seen = unfinished_.fetch_or(caller_asleep, std::memory_order_acq_rel) | caller_asleep;
  while (seen != caller_asleep) {
    futex_sleep(unfinished_, seen);
    seen = unfinished_.load(std::memory_order_acquire);
  }
}

WorkerPool::Worker::Worker(WorkerPool& pool, std::int32_t index)
    : pool_(pool), index_(index), spinner_(pool.spin_limit_) {
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::unsupported, "device cpu: cannot start thread ", index + 1, " of ", pool.count_,
                " (", error.what(), "); lower option threads or raise the limit on processes");
  }
  try {
    bind(thread_, index, pool.binding_);
  } catch (...) {
    tell(stop);
    thread_.join();
    throw;
  }
}

WorkerPool::Worker::~Worker() {
  tell(stop);
  thread_.join();
}

void WorkerPool::Worker::tell(State order) noexcept {
  if (state_.exchange(order, std::memory_order_acq_rel) == asleep) futex_wake_one(state_);
}

void WorkerPool::Worker::serve() noexcept {
  prctl(PR_SET_NAME, ("prun-w" + std::to_string(index_)).c_str());
  while (await_order() == work) {
    pool_.pass_on(index_);
    pool_.work_share(index_);
    // It is idle before it counts as finished: after that the next order may come at any time.
    state_.store(idle, std::memory_order_relaxed);
    pool_.report_done();
  }
}

WorkerPool::Worker::State WorkerPool::Worker::await_order() noexcept {
  const auto told = [&] { return state_.load(std::memory_order_acquire) >= work; };
  if (!spinner_.spin_until(told)) {
    std::uint32_t expected = idle;
    state_.compare_exchange_strong(expected, asleep, std::memory_order_acq_rel, std::memory_order_acquire);
    while (!told()) futex_sleep(state_, asleep);
  }
  return static_cast<State>(state_.load(std::memory_order_acquire));
}

}  // namespace prun::cpu
