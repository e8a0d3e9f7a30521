// Sums over rows, in two stages and without atomics: each block sums some rows of some columns into the
// workspace, then the blocks' sums are added up in their order and to the accumulators. The order depends on
// the shape and on the number of multiprocessors alone.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

inline constexpr int sum_lanes = 32, sum_rows = 8, sum_blocks = 3;  // blocks on a multiprocessor

// Says where Count sums of each column go; a null one is left out.
template <class S, int Count>
struct Accumulators {
  Sum<S> of[Count];
};

// Sets, or adds to, sums[column] the column's sum over `parts` rows of partial sums [parts, Count, width].
template <class S, int Count>
__global__ __launch_bounds__(1024) void add_parts_kernel(const Compute<S>* parts, std::int64_t count,
                                                         std::int64_t width, Accumulators<S, Count> sums) {
  using C = Compute<S>;
  __shared__ C shared[32][33];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  S* to = sums.of[blockIdx.y].data;
  const bool begins = sums.of[blockIdx.y].begins;
  if (!to) return;
  C sum = 0;
  if (column < width) {
    const C* from = parts + blockIdx.y * width + column;
    constexpr int unroll = 16;  // in one wait: two blocks on each multiprocessor have eight parts a thread
    for (std::int64_t part = threadIdx.y; part < count; part += 32 * unroll) {
      C term[unroll] = {};
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (part + 32 * u < count) term[u] = from[(part + 32 * u) * Count * width];
#pragma unroll
      for (int u = 0; u < unroll; ++u) sum += term[u];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // A warp folds a column: its lanes are the parts.
  sum = warp_fold(shared[threadIdx.x][threadIdx.y], Add());
  const std::int64_t folded = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && folded < width) store(to + folded, begins ? sum : load(to + folded) + sum);
}

template <class S, int Count>
void add_parts(const char* name, Stream stream, const Compute<S>* parts, std::int64_t count,
               std::int64_t width, const Accumulators<S, Count>& sums) {
  const dim3 grid(grid_of(ceil_div(width, 32)), Count);
  add_parts_kernel<S, Count><<<grid, dim3(32, 32), 0, stream>>>(parts, count, width, sums);
  check_launch(name);
}

// Terms says what is summed: `Row load(row, at)` fetches what N columns of a row need, the first being
// element `at`; `add(fetched, column, at, sums)` adds their terms to sums[0], sums[1], ... and may store
// values of its own. A thread has Terms::unroll rows in flight.
template <class C, int N, int Count, class Terms>
__global__ __launch_bounds__(sum_lanes* sum_rows, sum_blocks) void column_sum_kernel(Terms terms, int rows,
                                                                                     int width, C* parts) {
  __shared__ C shared[sum_rows][sum_lanes * N];
  const int column = static_cast<int>(blockIdx.x * sum_lanes + threadIdx.x) * N;
  const int step = static_cast<int>(gridDim.y) * sum_rows;
  const auto at = [&](int row) { return static_cast<std::int64_t>(row) * width + column; };
  Lanes<C, N> sums[Count] = {};
  if (column < width) {
    for (int row = static_cast<int>(blockIdx.y * sum_rows + threadIdx.y); row < rows;
         row += step * Terms::unroll) {
      decltype(terms.load(row, at(row))) fetched[Terms::unroll];
#pragma unroll
      for (int u = 0; u < Terms::unroll; ++u)
        if (row + u * step < rows) fetched[u] = terms.load(row + u * step, at(row + u * step));
#pragma unroll
      for (int u = 0; u < Terms::unroll; ++u)
        if (row + u * step < rows) terms.add(fetched[u], column, at(row + u * step), sums);
    }
  }
#pragma unroll
  for (int k = 0; k < Count; ++k) {
    if (k > 0) __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) shared[threadIdx.y][i * sum_lanes + threadIdx.x] = sums[k][i];
    __syncthreads();
    for (int i = threadIdx.y; i < N; i += sum_rows) {
      C sum = 0;
#pragma unroll
      for (int r = 0; r < sum_rows; ++r) sum += shared[r][i * sum_lanes + threadIdx.x];
      if (column < width) parts[static_cast<std::int64_t>(blockIdx.y * Count + k) * width + column + i] = sum;
    }
  }
}

// Returns how many blocks share a column's rows at most.
inline std::int64_t most_splits(std::int64_t rows, std::int64_t tiles, int processors) {
  const std::int64_t rows_worth_a_block = 4 * sum_rows;
  return std::max<std::int64_t>(
      1, std::min(rows / rows_worth_a_block, 2 * ceil_div(sum_blocks * processors, tiles)));
}

// Returns the number of splits that leaves the fewest multiprocessors idle when the blocks run in waves.
inline std::int64_t column_splits(std::int64_t rows, std::int64_t tiles) {
  const int processors = multiprocessors();
  const std::int64_t resident = std::int64_t{sum_blocks} * processors;
  const std::int64_t most = most_splits(rows, tiles, processors);
  std::int64_t best = 1;
  double best_share = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    const std::int64_t blocks = tiles * splits;
    const double share =
        static_cast<double>(blocks) / static_cast<double>(ceil_div(blocks, resident) * resident);
    if (share > best_share + 0.02) best = splits, best_share = share;
  }
  return best;
}

// Returns the bytes of workspace for sums of up to `count` per column of values that are computed in C.
template <class C>
std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t width, int count) {
  const std::int64_t fewest_tiles = ceil_div(width, sum_lanes * chunk<bf16>);
  return most_splits(rows, fewest_tiles, most_multiprocessors) * count * width *
         static_cast<std::int64_t>(sizeof(C));
}

template <int N, class S, int Count, class Terms>
void column_sums(const char* name, Stream stream, const Terms& terms, std::int64_t rows, std::int64_t width,
                 const Accumulators<S, Count>& sums, void* workspace) {
  using C = Compute<S>;
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  PRUN_CHECK(rows < limit && width < limit, name, " over ", rows, " rows of ", width);
  const std::int64_t tiles = ceil_div(width, sum_lanes * N), splits = column_splits(rows, tiles);
  C* parts = static_cast<C*>(workspace);
  column_sum_kernel<C, N, Count>
      <<<dim3(grid_of(tiles), grid_of(splits)), dim3(sum_lanes, sum_rows), 0, stream>>>(
          terms, static_cast<int>(rows), static_cast<int>(width), parts);
  check_launch(name);
  add_parts(name, stream, parts, splits, width, sums);
}

}  // namespace prun::cuda
