#include "base/process_limits.hpp"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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
