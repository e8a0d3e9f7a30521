// Measures a core's time for a normal number, by the instruction sets that this machine has: CPU time of the
// best of many runs over 65,536 floats.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/random.hpp"

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const prun::NormalNumbers& build, std::vector<float>& numbers) {
  const double begin = cpu_seconds();
  build.pairs(1, 2, 0, static_cast<std::int64_t>(numbers.size() / 2), 0.0, 0.02, numbers.data());
  return cpu_seconds() - begin;
}

}  // namespace

int main() {
  std::vector<float> numbers(1 << 16);
  for (const prun::NormalNumbers& build : prun::normal_numbers()) {
    double best = 1;
    for (int run = 0; run < 200; ++run) best = std::min(best, seconds_of(build, numbers));
    std::printf("%-8.*s %.2f ns a number\n", static_cast<int>(build.isa.size()), build.isa.data(),
                1e9 * best / static_cast<double>(numbers.size()));
  }
}
