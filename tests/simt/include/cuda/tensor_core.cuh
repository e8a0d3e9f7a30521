// In place of kernels/cuda/tensor_core.cuh, whose instructions are a GPU's: each lane reads what it gets from
// shared memory, and computes its part of a product from what the warp has brought.
#pragma once

#include <bit>
#include <cstdint>

#include "prun/types.hpp"
#include "tests/simt/machine.hpp"

namespace prun::cuda {

using Pair = std::uint32_t;

inline void load_matrices(Pair (&to)[4], const void* row, simt::Place where = simt::Place::current()) {
  const auto lane = static_cast<std::size_t>(simt::lane());
  simt::Lanes rows = simt::bring(reinterpret_cast<std::uintptr_t>(row), where);
  for (std::size_t m = 0; m < 4; ++m) to[m] = reinterpret_cast<const Pair*>(rows[8 * m + lane / 4])[lane % 4];
}

inline void load_matrices_turned(Pair (&to)[4], const void* row, simt::Place where = simt::Place::current()) {
  const auto lane = static_cast<std::size_t>(simt::lane());
  simt::Lanes rows = simt::bring(reinterpret_cast<std::uintptr_t>(row), where);
  const auto of = [&](std::size_t m, std::size_t r) {
    return Pair{reinterpret_cast<const std::uint16_t*>(rows[8 * m + r])[lane / 4]};
  };
  for (std::size_t m = 0; m < 4; ++m) to[m] = of(m, 2 * (lane % 4)) | of(m, 2 * (lane % 4) + 1) << 16;
}

// Half h of a pair; of two pairs in a number, of pair p.
template <class T>
float half_of(std::uint64_t pairs, std::size_t p, std::size_t h) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(pairs >> (32 * p + 16 * h))));
}

template <class T = bf16>
void multiply_add(float (&sums)[4], const Pair (&a)[4], Pair first, Pair last,
                  simt::Place where = simt::Place::current()) {
  const auto two = [](Pair low, Pair high) { return low | std::uint64_t{high} << 32; };
  float left[2][16], right[2][16];  // rows l / 4 and l / 4 + 8, and this lane's two columns
  const auto lane = static_cast<std::size_t>(simt::lane());
  const auto take = [&](std::uint64_t mine, auto from) {
    simt::Lanes all = simt::bring(mine, where);
    for (std::size_t k = 0; k < 8; ++k) from(all, k / 2, k % 2, k);
  };
  for (std::size_t half = 0; half < 2; ++half)
    take(two(a[2 * half], a[2 * half + 1]),
         [&](simt::Lanes all, std::size_t of, std::size_t h, std::size_t k) {
           for (std::size_t row = 0; row < 2; ++row)
             left[row][8 * half + k] = half_of<T>(all[lane / 4 * 4 + of], row, h);
         });
  take(two(first, last), [&](simt::Lanes all, std::size_t of, std::size_t h, std::size_t k) {
    for (std::size_t column = 0; column < 2; ++column)
      for (std::size_t half = 0; half < 2; ++half)
        right[column][8 * half + k] = half_of<T>(all[(2 * (lane % 4) + column) * 4 + of], half, h);
  });
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t k = 0; k < 16; ++k) sums[i] += left[i / 2][k] * right[i % 2][k];
}

}  // namespace prun::cuda
