// Multiplies bf16 or fp16 with sums in float, as the tensor cores of every GPU since Ampere do: a warp
// multiplies 16 rows by 8 columns over 16 channels. Of such a tile, lane l holds the columns 2 (l % 4) and
// the next of rows l / 4 and l / 4 + 8.
#pragma once

#include <cstdint>

#include "prun/types.hpp"

namespace prun::cuda {

// Holds two neighbours in a register, the first in the lower half.
using Pair = std::uint32_t;

// Loads four matrices of 8 x 8 from shared memory: lane l says where row l % 8 of matrix l / 8 begins, at a
// multiple of 16 bytes, and gets of each matrix the columns 2 (l % 4) and the next of row l / 4.
__device__ __forceinline__ void load_matrices(Pair (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row))));
}

// Does the same with rows and columns of each matrix exchanged: the rows 2 (l % 4) and the next of column l /
// 4.
__device__ __forceinline__ void load_matrices_turned(Pair (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row))));
}

// Computes sums += a b. Matrices of a, 16 rows by 16 channels, lie in the order (rows, channels) = (first,
// first), (last, first), (first, last), (last, last) half; b is 8 columns by 16 channels, its halves first
// and last.
template <class T = bf16>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const Pair (&a)[4], Pair first, Pair last) {
  if constexpr (std::is_same_v<T, f16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(last));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(last));
}

}  // namespace prun::cuda
