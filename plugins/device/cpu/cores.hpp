// Finds which cores this process may use, and keeps a thread on some of them.
#pragma once

#include <pthread.h>

#include <span>
#include <vector>

namespace prun::cpu {

// Returns the cores in the calling thread's affinity mask, ascending; never empty.
std::vector<int> usable_cores();

// Throws unsupported when the system refuses.
void keep_thread_on(pthread_t thread, std::span<const int> cores);

}  // namespace prun::cpu
