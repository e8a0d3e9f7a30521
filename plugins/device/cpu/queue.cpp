#include "queue.hpp"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker_pool.hpp"

namespace prun::cpu {
CpuQueue::CpuQueue(std::string_view name, std::int32_t threads, Binding binding,
                   std::chrono::microseconds spin)
    : name_(name), pool_(threads, std::move(binding), spin), workers_(pool_.workers()) {}

CpuQueue::~CpuQueue() {
  if (submitter_ != gettid()) return;
  try {
    keep_thread_on(pthread_self(), submitter_cores_);
  } catch (const Error&) {
    // These cores were taken from the process meanwhile: then this thread stays where it is.
  }
}

void CpuQueue::attach() {
  constexpr std::size_t longest_thread_name = 15;
  prctl(PR_SET_NAME, ("prun-q-" + name_).substr(0, longest_thread_name).c_str());
  if (!binding().pinned) return;
  std::vector<int> before = usable_cores();
  keep_thread_on(pthread_self(), std::span(binding().cores).first(1));
  submitter_ = gettid();
  submitter_cores_ = std::move(before);
}

const CpuQueue::Launches& CpuQueue::bind(Launches launches) {
  for (const Launch& launch : launches) PRUN_CHECK(launch.kernel, "queue ", name_);
  return works_.emplace_back(launches);
}

void CpuQueue::run(const Launches& launches) {
  const KernelContext context{&workers_, nullptr};
  for (const Launch& launch : launches) launch.kernel(launch.args, context);
}

}  // namespace prun::cpu
