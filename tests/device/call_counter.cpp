// Stands before the C library's functions of the same names, and calls them.
#include "call_counter.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<std::int64_t> allocations = 0;
std::atomic<std::int64_t> locks = 0;

}  // namespace

namespace prun::test {

Calls calls_so_far() { return {allocations.load(), locks.load()}; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool calls_are_counted() { return false; }

}  // namespace prun::test

#else

bool calls_are_counted() { return true; }

}  // namespace prun::test

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  allocations.fetch_add(1);
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  allocations.fetch_add(1);
  return __libc_calloc(count, size);
}

void* realloc(void* memory, std::size_t size) {
  allocations.fetch_add(1);
  return __libc_realloc(memory, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  allocations.fetch_add(1);
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  allocations.fetch_add(1);
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real = nullptr;
  locks.fetch_add(1);
  Lock lock = real.load();
  if (!lock) real.store(lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock")));
  return lock(mutex);
}
}

#endif
