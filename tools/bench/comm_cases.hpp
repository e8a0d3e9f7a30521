// Holds what comm_bench and mpi_bench have in common, so that both measure the same thing the same way: they
// time operations one after the other on warm buffers, and report the median of their times on the first
// rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace comm_bench {

enum class Operation { all_reduce, all_gather, reduce_scatter };
constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter"};

// `bytes` counts the whole: what all_reduce reduces, all_gather ends with, reduce_scatter begins with.
struct Case {
  Operation operation;
  std::int64_t bytes;
  int iterations;
};

inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [bytes, iterations] :
       {std::pair<std::int64_t, int>{1 << 10, 5000}, {1 << 20, 500}, {64 << 20, 25}})
    for (const Operation operation :
         {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter})
      all.push_back({operation, bytes, iterations});
  return all;
}

// Holds floats of the whole and of one member's part.
struct Buffers {
  Buffers(const Case& c, int ranks)
      : whole_count(c.bytes / 4 / ranks * ranks),
        part_count(whole_count / ranks),
        whole(static_cast<std::size_t>(whole_count), 1.0f),
        other(whole.size(), 0.0f),
        part(static_cast<std::size_t>(part_count), 1.0f) {}
  std::int64_t whole_count, part_count;
  std::vector<float> whole, other, part;
};

template <class Body>
double median_microseconds(int iterations, Body&& body) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < iterations / 5 + 2; ++i) body();
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) {
    const auto begin = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + iterations / 2, times.end());
  return times[static_cast<std::size_t>(iterations / 2)];
}

inline void print_header() {
  std::printf("| operation      |    bytes | microseconds |   GB/s |\n");
  std::printf("|----------------|----------|--------------|--------|\n");
}

inline void print_row(const Case& c, double microseconds) {
  std::printf("| %-14s | %8ld | %12.1f | %6.2f |\n", names[static_cast<int>(c.operation)],
              static_cast<long>(c.bytes), microseconds, static_cast<double>(c.bytes) / microseconds / 1e3);
  std::fflush(stdout);
}

}  // namespace comm_bench
