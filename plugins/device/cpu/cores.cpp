// Handles affinity masks of any size: the kernel refuses a mask smaller than its own.
#include "cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "prun/error.hpp"

namespace prun::cpu {
namespace {

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

}  // namespace prun::cpu
