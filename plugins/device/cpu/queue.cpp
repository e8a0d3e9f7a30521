// Tickets. A sleeper announces itself and then looks at the ticket; signal() publishes the ticket and then
// looks for sleepers. Both in one total order (seq_cst): at least one of them sees the other.
#include "queue.hpp"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cores.hpp"

namespace prun::cpu {
namespace {

// Who waits for a ticket stands beside threads that compute: it must not take a core from them for long.
constexpr std::chrono::microseconds longest_spin{20};

}  // namespace

CpuQueue::CpuQueue(std::string_view name, std::int32_t threads, Binding binding,
                   std::chrono::microseconds spin)
    : name_(name),
      spin_limit_(std::min(spin, longest_spin)),
      pool_(threads, std::move(binding), spin),
      workers_(pool_.workers()) {}

CpuQueue::~CpuQueue() {
  if (feeder_ != gettid()) return;
  try {
    keep_thread_on(pthread_self(), feeder_cores_);
  } catch (const Error&) {
    // Those cores were taken from the process meanwhile: then this thread stays where it is.
  }
}

void CpuQueue::attach() {
  constexpr std::size_t longest_thread_name = 15;
  prctl(PR_SET_NAME, ("prun-q-" + name_).substr(0, longest_thread_name).c_str());
  if (!binding().pinned) return;
  std::vector<int> before = usable_cores();
  keep_thread_on(pthread_self(), std::span(binding().cores).first(1));
  feeder_ = gettid();
  feeder_cores_ = std::move(before);
}

void CpuQueue::launch(std::span<const Launch> launches) {
  const KernelContext context{&workers_, nullptr};
  for (const Launch& launch : launches) {
    PRUN_CHECK(launch.kernel, "queue ", name_);
    launch.kernel(launch.args, context);
  }
}

void CpuQueue::signal(std::uint64_t ticket) {
  PRUN_CHECK(ticket >= ticket_.load(std::memory_order_relaxed), "queue ", name_, " signals ticket ", ticket,
             " after ", ticket_.load(std::memory_order_relaxed));
  ticket_.store(ticket, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  bell_.fetch_add(1, std::memory_order_release);
  futex_wake_all(bell_);
}

void CpuQueue::wait(CpuQueue& other, std::uint64_t ticket) {
  PRUN_CHECK(&other != this || reached(ticket), "queue ", name_, " would wait for its own ticket ", ticket,
             " for ever");
  other.await(ticket);
}

void CpuQueue::await(std::uint64_t ticket) noexcept {
  if (Spinner(spin_limit_).spin_until([&] { return reached(ticket); })) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t rung = bell_.load(std::memory_order_acquire);
    if (reached(ticket)) break;
    futex_sleep(bell_, rung);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace prun::cpu
