// Implements the kernel of the op plugin `endless`.
#include "tests/support/endless.hpp"

namespace prun {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// "Endless" is two minutes: a kernel that holds a GPU must let it go some day, whatever becomes of the
// process.
__global__ void spin(const std::int64_t* samples, std::int64_t count, std::int64_t sample) {
  bool found = false;
  for (std::int64_t i = 0; i < count; ++i) found = found || samples[i] == sample;
  const unsigned long long begin = nanoseconds();
  while (found && nanoseconds() - begin < 120'000'000'000ull) __nanosleep(1000);
}

}  // namespace

void spin_where(const std::int64_t* samples, std::int64_t count, std::int64_t sample, void* stream) {
  spin<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(samples, count, sample);
}

}  // namespace prun
