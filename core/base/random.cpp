#include "base/random.hpp"

#include <vector>

namespace prun {
namespace cpu {

// The functions are built once for each of these from kernels/random/normal.cpp.
#define PRUN_NORMAL_NUMBERS(isa)                                                                       \
  namespace isa {                                                                                      \
  void normal_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t number, double* out);       \
  void normal_pairs(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::int64_t count, \
                    double mean, double deviation, float* out);                                        \
  }
PRUN_NORMAL_NUMBERS(generic)
#if defined(__x86_64__)
PRUN_NORMAL_NUMBERS(avx2)
PRUN_NORMAL_NUMBERS(avx512)
#endif
#undef PRUN_NORMAL_NUMBERS

}  // namespace cpu

// Lists the builds; the build system gives them what they assume: prun_add_normal_numbers in
// cmake/prun_generate.cmake.
std::vector<NormalNumbers> normal_numbers() {
  std::vector<NormalNumbers> list{{"generic", cpu::generic::normal_pair, cpu::generic::normal_pairs}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    list.push_back({"avx2", cpu::avx2::normal_pair, cpu::avx2::normal_pairs});
  if (list.size() == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    list.push_back({"avx512", cpu::avx512::normal_pair, cpu::avx512::normal_pairs});
#endif
  return list;
}

namespace {

const NormalNumbers& best_normal_numbers() {
  static const NormalNumbers best = normal_numbers().back();
  return best;
}

}  // namespace

double RandomStream::normal(std::uint64_t index) const {
  std::array<double, 2> values{};
  best_normal_numbers().pair(seed_, stream_, index / 2, values.data());
  return values[index % 2];
}

void RandomStream::fill_normal(std::span<float> out, std::uint64_t first, double mean,
                               double deviation) const {
  const auto pairs = [&](std::uint64_t number, std::size_t count, float* to) {
    best_normal_numbers().pairs(seed_, stream_, number, static_cast<std::int64_t>(count), mean, deviation,
                                to);
  };
  std::array<float, 2> values{};
  if (first % 2 == 1 && !out.empty()) {
    pairs(first / 2, 1, values.data());
    out[0] = values[1];
    out = out.subspan(1);
    ++first;
  }
  pairs(first / 2, out.size() / 2, out.data());
  if (out.size() % 2 == 1) {
    pairs((first + out.size()) / 2, 1, values.data());
    out.back() = values[0];
  }
}

}  // namespace prun
