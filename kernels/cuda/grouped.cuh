// Multiplies groups of rows, whose offsets are on the device: begin[g] is the first row of group g,
// begin[groups] their number. Tiles of 64 x 64 are in shared memory, products in float (double for double),
// and each output is a sum over its channels in their order: so its bits depend on nothing else.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

namespace grouped {

inline constexpr int tile = 64, depth = 16, threads = 256, each = 4;  // a thread has 4 x 4 outputs

template <class C>
struct Tiles {
  C left[depth][tile + 4], right[depth][tile + 4];
};

// Adds left^T right to sums, from shared memory. Thread (i, j) has rows 4 i.. and columns 4 j...
template <class C>
__device__ __forceinline__ void multiply(const Tiles<C>& at, C (&sums)[each][each]) {
  const int row = static_cast<int>(threadIdx.x) / 16 * each,
            column = static_cast<int>(threadIdx.x) % 16 * each;
#pragma unroll
  for (int k = 0; k < depth; ++k) {
    C a[each], b[each];
#pragma unroll
    for (int i = 0; i < each; ++i) a[i] = at.left[k][row + i], b[i] = at.right[k][column + i];
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) sums[i][j] += a[i] * b[j];
  }
}

// Fills a tile: element (k, m) is load(k, m), 0 outside. With `along_k` neighbours in memory follow k.
template <bool along_k, class C, class Load>
__device__ __forceinline__ void fill(C (&to)[depth][tile + 4], const Load& load) {
#pragma unroll
  for (int i = 0; i < depth * tile / threads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * threads;
    const int k = along_k ? at % depth : at / tile, m = along_k ? at / depth : at % tile;
    to[k][m] = load(k, m);
  }
}

}  // namespace grouped

// Returns the group, in order, that has tile number `number` of all tiles that groups of these sizes have; -1
// where there are fewer. `first` is the tile's first row.
__device__ __forceinline__ int group_of_tile(const std::int32_t* begin, int groups, std::int64_t number,
                                             std::int64_t& first) {
  for (int g = 0; g < groups; ++g) {
    const std::int64_t tiles = (begin[g + 1] - begin[g] + grouped::tile - 1) / grouped::tile;
    if (number < tiles) {
      first = begin[g] + number * grouped::tile;
      return g;
    }
    number -= tiles;
  }
  return -1;
}

// Sets to[r, n] = sum over k of from[map(r), k] * weight[group of r][n, k] or, turned, [k, n]. `map` may be
// null.
template <class T, class Out, bool turned>
__global__ __launch_bounds__(grouped::threads) void grouped_rows_kernel(const T* from,
                                                                        const std::int32_t* map,
                                                                        const T* weight, Out* to,
                                                                        const std::int32_t* begin, int groups,
                                                                        std::int64_t n, std::int64_t k) {
  using C = Compute<T>;
  using namespace grouped;
  __shared__ Tiles<C> at;
  std::int64_t first = 0;
  const int group = group_of_tile(begin, groups, blockIdx.x, first);
  if (group < 0) return;
  const std::int64_t end = begin[group + 1], column = static_cast<std::int64_t>(blockIdx.y) * tile;
  const T* const w = weight + group * n * k;
  C sums[each][each] = {};
  for (std::int64_t step = 0; step < k; step += depth) {
    fill<true>(at.left, [&](int kk, int m) {
      const std::int64_t row = first + m, channel = step + kk;
      if (row >= end || channel >= k) return C(0);
      return load(from + (map ? map[row] : row) * k + channel);
    });
    fill<!turned>(at.right, [&](int kk, int m) {
      const std::int64_t out = column + m, channel = step + kk;
      if (out >= n || channel >= k) return C(0);
      return load(w + (turned ? channel * n + out : out * k + channel));
    });
    __syncthreads();
    multiply(at, sums);
    __syncthreads();
  }
  const int row = static_cast<int>(threadIdx.x) / 16 * each, own = static_cast<int>(threadIdx.x) % 16 * each;
  for (int i = 0; i < each; ++i)
    for (int j = 0; j < each; ++j)
      if (first + row + i < end && column + own + j < n)
        store(to + (first + row + i) * n + column + own + j, sums[i][j]);
}

// Computes sum[g][m, n] += sum over rows r of group g of left[left_map(r), m] * right[r, n], or = where it
// begins.
template <class T, class S>
__global__ __launch_bounds__(grouped::threads) void grouped_sums_kernel(const T* left,
                                                                        const std::int32_t* left_map,
                                                                        const T* right, S* sum, bool begins,
                                                                        const std::int32_t* begin,
                                                                        std::int64_t m, std::int64_t n) {
  using C = Compute<T>;
  using namespace grouped;
  __shared__ Tiles<C> at;
  const std::int64_t group = blockIdx.z, row = static_cast<std::int64_t>(blockIdx.x) * tile,
                     column = static_cast<std::int64_t>(blockIdx.y) * tile;
  const std::int64_t end = begin[group + 1];
  C sums[each][each] = {};
  for (std::int64_t step = begin[group]; step < end; step += depth) {
    fill<false>(at.left, [&](int kk, int i) {
      const std::int64_t r = step + kk;
      if (r >= end || row + i >= m) return C(0);
      return load(left + (left_map ? left_map[r] : r) * m + row + i);
    });
    fill<false>(at.right, [&](int kk, int i) {
      const std::int64_t r = step + kk;
      if (r >= end || column + i >= n) return C(0);
      return load(right + r * n + column + i);
    });
    __syncthreads();
    multiply(at, sums);
    __syncthreads();
  }
  S* const own = sum + group * m * n;
  const int i0 = static_cast<int>(threadIdx.x) / 16 * each, j0 = static_cast<int>(threadIdx.x) % 16 * each;
  for (int i = 0; i < each; ++i)
    for (int j = 0; j < each; ++j) {
      if (row + i0 + i >= m || column + j0 + j >= n) continue;
      S* const to = own + (row + i0 + i) * n + column + j0 + j;
      store(to, begins ? sums[i][j] : sums[i][j] + static_cast<C>(load(to)));
    }
}

}  // namespace prun::cuda
