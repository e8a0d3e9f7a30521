// Runs loops in a fixed arrangement of lanes. An element's bits must not depend on where a range was cut:
// every element of an elementwise kernel passes through the same vector code, and sums over a row are always
// arranged in the same way.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "cpu/isa.hpp"
#include "prun/workers.hpp"

namespace prun::cpu::PRUN_ISA {

// A block body handles so many elements at once: some vectors of any type, in any instruction set.
inline constexpr int block_lanes = 64;

// Runs the body on the n < block_lanes elements of the arrays, padded with zeros.
template <class Body, class... T>
void short_block(std::int64_t n, const Body& body, T*... arrays) {
  std::tuple<std::array<std::remove_const_t<T>, block_lanes>...> padded{};
  const auto copy_back = [n](const auto& block, auto* array) {
    if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(array)>>)
      std::copy_n(block.data(), n, array);
  };
  std::apply(
      [&](auto&... block) {
        (std::copy_n(arrays, n, block.data()), ...);
        body(block.data()...);
        (copy_back(block, arrays), ...);
      },
      padded);
}

// Calls body(arrays + i...) for every block_lanes elements, the last ones padded.
template <class Body, class... T>
void for_blocks(std::int64_t n, const Body& body, T*... arrays) {
  std::int64_t i = 0;
  for (; i + block_lanes <= n; i += block_lanes) body((arrays + i)...);
  if (i < n) short_block(n - i, body, (arrays + i)...);
}

// Does the same on all workers.
template <class Body, class... T>
void parallel_blocks(const Workers& workers, std::int64_t n, const Body& body, T*... arrays) {
  constexpr std::int64_t grain = 64 * block_lanes;
  parallel_ranges(workers, n, grain, [&](std::int64_t begin, std::int64_t end) {
    for_blocks(end - begin, body, (arrays + begin)...);
  });
}

// Sums term(i) over [0, n): lane l takes i = l, l + block_lanes, ...; then the lanes are added pairwise.
template <class Value, class Term>
Value lane_sum(std::int64_t n, const Term& term) {
  Value sum[block_lanes] = {};
  std::int64_t i = 0;
  for (; i + block_lanes <= n; i += block_lanes) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) sum[l] += term(i + l);
  }
  for (int l = 0; i + l < n; ++l) sum[l] += term(i + l);
  for (int half = block_lanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
  return sum[0];
}

}  // namespace prun::cpu::PRUN_ISA
