#include "base/machine.hpp"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- machine

// Returns "model name : Intel..." of the first processor or, if there is none, the architecture.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || trim(std::string_view(line).substr(0, colon)) != "model name") continue;
    return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

std::string best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "generic";
}

}  // namespace

Machine this_machine() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  return {printable(cpu_name(), 200), known ? CPU_COUNT(&cores) : 1, best_isa()};
}

std::string to_text(const Machine& machine) {
  return detail::concat(machine.cpu, ", ", machine.cores, machine.cores == 1 ? " core, " : " cores, ",
                        machine.isa);
}

// ------------------------------------------------------------------- core shares

std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable)) cores.push_back(core);
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::optional<cpu_set_t>> shares(count);
  if (cores.size() < count) return shares;
  for (std::size_t rank = 0; rank < count; ++rank) {
    cpu_set_t share;
    CPU_ZERO(&share);
    for (std::size_t i = cores.size() * rank / count; i < cores.size() * (rank + 1) / count; ++i)
      CPU_SET(cores[i], &share);
    shares[rank] = share;
  }
  return shares;
}

CoresOfRank::CoresOfRank(int rank, int ranks) {
  cpu_set_t usable;
  if (ranks <= 1 || ::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  const auto share = share_cores(usable, ranks)[static_cast<std::size_t>(rank)];
  if (share && ::sched_setaffinity(0, sizeof *share, &*share) == 0) before_ = usable;
}

CoresOfRank::~CoresOfRank() {
  if (before_) ::sched_setaffinity(0, sizeof *before_, &*before_);
}

void keep_to_share(int local_rank, int local_ranks) {
  cpu_set_t usable;
  if (local_ranks <= 1 || ::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  if (CPU_COUNT(&usable) < ::sysconf(_SC_NPROCESSORS_ONLN)) return;
  const auto share = share_cores(usable, local_ranks)[static_cast<std::size_t>(local_rank)];
  if (share) ::sched_setaffinity(0, sizeof *share, &*share);
}

namespace {

// ------------------------------------------------------------------- process limits

void set_stack_of_threads(std::int64_t bytes) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(bytes));
  ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

void meet_stack_limit() {
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= static_cast<rlim_t>(least_stack_bytes))
    return;
  const auto allowed = static_cast<double>(stack.rlim_cur);
  stack.rlim_cur = static_cast<rlim_t>(least_stack_bytes);
  if (stack.rlim_max < stack.rlim_cur || ::setrlimit(RLIMIT_STACK, &stack) != 0)
    throw_error(ErrorCode::unsupported, "cannot start a thread with ", size_text(least_stack_bytes),
                " of stack: ", size_text(allowed), " are allowed here; raise the limit (ulimit -s)");
  set_stack_of_threads(least_stack_bytes);
}

// Makes the allocator return large blocks. By default, it takes the first large block that is freed as a sign
// that all blocks up to its size belong in the heap, of which it then keeps twice as much: a corpus that is
// read twice, or tables of planning, would stay with the process for the whole run.
void return_large_blocks() {
  constexpr int large = 1 << 20;
  ::mallopt(M_MMAP_THRESHOLD, large);
  ::mallopt(M_TRIM_THRESHOLD, large);
}

}  // namespace

std::int64_t stack_of_threads() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return static_cast<std::int64_t>(bytes);
}

void meet_process_limits() {
  meet_stack_limit();
  return_large_blocks();
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    ::mallopt(M_ARENA_MAX, 1);
}

// AddressSanitizer's allocator replaces the one that this call is for.
void give_back_free_memory() {
#ifndef __SANITIZE_ADDRESS__
  ::malloc_trim(0);
#endif
}

}  // namespace prun
