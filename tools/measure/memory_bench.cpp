#include "measure/memory_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/machine.hpp"
#include "base/thread.hpp"

namespace prun {
namespace {

constexpr std::size_t elements = std::size_t{128} << 20;  // counts those of each: half a GiB
constexpr std::size_t piece = std::size_t{1} << 20;
constexpr int repeats = 5;

double seconds_of(auto&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// Returns the rate of the fastest of some runs: other programs only slow them down. A piece may have another
// thread each time, as with updates.
double host_bandwidth() {
  const auto threads = static_cast<std::size_t>(this_machine().cores);
  const auto a = std::make_unique_for_overwrite<float[]>(elements),
             b = std::make_unique_for_overwrite<float[]>(elements);
  const auto all = [&](auto&& each) {
    share_out(threads, elements / piece,
              [&](std::size_t, std::size_t i) { each(a.get() + i * piece, b.get() + i * piece); });
  };
  all([](float* x, float* y) {
    std::fill_n(x, piece, 1.0f);
    std::fill_n(y, piece, 2.0f);
  });
  double least = std::numeric_limits<double>::max();
  for (int repeat = 0; repeat < repeats; ++repeat)
    least = std::min(least, seconds_of([&] {
                       all([](float* x, const float* y) {
                         for (std::size_t i = 0; i < piece; ++i) x[i] += 0.5f * y[i];
                       });
                     }));
  return 3.0 * sizeof(float) * static_cast<double>(elements) / least;
}

}  // namespace prun
