// Adds up rows by the row of a table that they belong to, in a fixed order. What is ordered (row_order.cuh)
// is cut into stretches of equal length. A warp adds up the rows of a stretch, some columns of them: sums of
// runs of one row of the table that lie within the stretch go there, those of runs that cross its ends to the
// workspace, from where the warp of the run's first stretch adds them up in their order.
#pragma once

#include "embedding/cuda_row_order.cuh"

namespace prun::cuda {

inline constexpr int stretch = 32;

// Holds sums of runs that cross a stretch's ends: of the run that comes from before, and of the one that goes
// on.
template <class C>
struct Crossing {
  C* head;
  C* tail;
};

inline constexpr int stretch_warps = 4, stretch_unroll = 4, stretch_blocks = 5;  // on a multiprocessor
inline constexpr int crossing_warps = 8, crossing_unroll = 8;

// Says which stretch is a warp's, and which of its columns are a lane's: blocks that follow each other have
// other columns of the same rows.
template <int N, int warps>
struct Piece {
  std::int64_t number, column;

  __device__ Piece(unsigned groups)
      : number(static_cast<std::int64_t>(blockIdx.x / groups) * warps + threadIdx.y),
        column(static_cast<std::int64_t>(blockIdx.x % groups * 32 + threadIdx.x) * N) {}
};

template <int N, class T, class S>
__global__ __launch_bounds__(32 * stretch_warps,
                             stretch_blocks) void stretch_kernel(RowOrder order, const T* dy, S* dtable,
                                                                 std::int64_t width, unsigned groups,
                                                                 Crossing<Compute<T>> crossing) {
  using C = Compute<T>;
  constexpr std::int32_t none = -1;
  const auto [number, column] = Piece<N, stretch_warps>(groups);
  const std::int64_t count = *order.count;
  const std::int64_t begin = number * stretch, end = begin + stretch < count ? begin + stretch : count;
  if (begin >= count || column >= width) return;
  const bool from_before = begin > 0 && order.rows[begin - 1] == order.rows[begin];
  const bool goes_on = end < count && order.rows[end] == order.rows[end - 1];
  const std::int32_t first = order.rows[begin];
  Lanes<C, N> sum = {};
  for (std::int64_t i = begin; i < end; i += stretch_unroll) {
    Pack<T, N> terms[stretch_unroll];
    Pack<S, N> before[stretch_unroll];
    std::int32_t row[stretch_unroll + 1], place[stretch_unroll];
#pragma unroll
    for (int u = 0; u <= stretch_unroll; ++u) row[u] = i + u < end ? order.rows[i + u] : none;
#pragma unroll
    for (int u = 0; u < stretch_unroll; ++u) place[u] = i + u < end ? order.places[i + u] : none;
    const auto last = [&](int u) { return i + u + 1 == end; };
    const auto run_ends = [&](int u) { return last(u) || row[u + 1] != row[u]; };
    const auto in_head = [&](int u) { return from_before && row[u] == first; };
    const auto in_tail = [&](int u) { return last(u) && goes_on; };
#pragma unroll
    for (int u = 0; u < stretch_unroll; ++u)
      if (row[u] != none) {
        terms[u] = load_pack<N>(dy + static_cast<std::int64_t>(place[u]) * width + column);
        if (run_ends(u) && !in_head(u) && !in_tail(u))
          before[u] = load_pack<N>(dtable + row[u] * width + column);
      }
#pragma unroll
    for (int u = 0; u < stretch_unroll; ++u) {
      if (row[u] == none) continue;
      const Lanes<C, N> term = unpack(terms[u]);
#pragma unroll
      for (int l = 0; l < N; ++l) sum[l] += term[l];
      if (!run_ends(u)) continue;
      if (in_head(u)) {
        store_lanes(crossing.head + number * width + column, sum);
      } else if (in_tail(u)) {
        store_lanes(crossing.tail + number * width + column, sum);
      } else {
        const Lanes<C, N> there = unpack(before[u]);
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] = there[l] + sum[l];
        store_lanes(dtable + row[u] * width + column, sum);
      }
      sum = {};
    }
  }
}

// Returns how many stretches behind this one the run reaches that goes on behind it; 0: none does that begins
// here. All lanes of the warp ask.
__device__ __forceinline__ std::int64_t stretches_behind(const RowOrder& order, std::int64_t number,
                                                         std::int64_t count) {
  constexpr int unroll = 4;
  const std::int64_t begin = number * stretch, end = begin + stretch;
  if (end >= count) return 0;
  const std::int32_t row = order.rows[end - 1];
  if (order.rows[end] != row || (begin > 0 && order.rows[begin - 1] == row)) return 0;
  for (std::int64_t found = 0;; found += 32 * unroll) {
    bool in[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::int64_t at = end + (found + u * 32 + threadIdx.x) * stretch;
      in[u] = at < count && order.rows[at] == row;
    }
    int here = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) here += __popc(__ballot_sync(0xffffffff, in[u]));
    if (here < 32 * unroll) return found + here;
  }
}

// Adds up what stretches have of a run, from `first` to before `end` in steps.
template <int N, class C>
__device__ __forceinline__ Lanes<C, N> sum_heads(const C* heads, std::int64_t first, std::int64_t end,
                                                 int step, std::int64_t width) {
  Lanes<C, N> sum = {};
  for (std::int64_t at = first; at < end; at += step * crossing_unroll) {
    Lanes<C, N> part[crossing_unroll];
    const auto in = [&](int u) { return at + u * step < end; };
#pragma unroll
    for (int u = 0; u < crossing_unroll; ++u)
      if (in(u)) part[u] = load_lanes<N>(heads + (at + u * step) * width);
#pragma unroll
    for (int u = 0; u < crossing_unroll; ++u)
      if (in(u)) {
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] += part[u][l];
      }
  }
  return sum;
}

// A run's later stretches have all of it in their heads. The warp of a run's first stretch adds it up; where
// it reaches far, all warps of the block do, each every eighth.
template <int N, class S>
__global__ __launch_bounds__(32 * crossing_warps, 3) void crossing_kernel(RowOrder order, S* dtable,
                                                                          std::int64_t width, unsigned groups,
                                                                          Crossing<Compute<S>> crossing) {
  using C = Compute<S>;
  constexpr int far = 2 * crossing_unroll;
  __shared__ std::int64_t behind[crossing_warps];
  __shared__ C parts[crossing_warps][N][32];
  const auto [number, column] = Piece<N, crossing_warps>(groups);
  const std::int64_t count = *order.count, block = number - threadIdx.y;
  if (block * stretch >= count) return;
  const std::int64_t mine = stretches_behind(order, number, count);
  if (threadIdx.x == 0) behind[threadIdx.y] = mine;
  __syncthreads();
  const bool inside = column < width;
  const C* const heads = crossing.head + column;
  const auto finish = [&, number = number, column = column](Lanes<C, N> sum) {
    const Lanes<C, N> tail = load_lanes<N>(crossing.tail + number * width + column);
    S* const to = dtable + order.rows[number * stretch + stretch - 1] * width + column;
    const Lanes<C, N> before = load_lanes<N>(to);
#pragma unroll
    for (int l = 0; l < N; ++l) sum[l] = before[l] + (tail[l] + sum[l]);
    store_lanes(to, sum);
  };
  if (inside && mine > 0 && mine <= far) finish(sum_heads<N>(heads, number + 1, number + 1 + mine, 1, width));
  for (int w = 0; w < crossing_warps; ++w) {
    if (behind[w] <= far) continue;
    const std::int64_t first = block + w + 1, me = threadIdx.y;
    Lanes<C, N> sum = {};
    if (inside) sum = sum_heads<N>(heads, first + me, first + behind[w], crossing_warps, width);
#pragma unroll
    for (int l = 0; l < N; ++l) parts[me][l][threadIdx.x] = sum[l];
    __syncthreads();
    if (me == w && inside) {
      sum = {};
      for (int part = 0; part < crossing_warps; ++part)
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] += parts[part][l][threadIdx.x];
      finish(sum);
    }
    __syncthreads();
  }
}

// Adds to dtable[row] the rows of dy, at most `most` of them, that the order says belong to it.
template <class T, class S>
void add_runs(const char* name, const RowOrder& order, std::int64_t most, const T* dy, S* dtable,
              std::int64_t width, const Crossing<Compute<T>>& crossing, Stream stream) {
  const auto blocks = [&](int warps, unsigned groups) {
    return grid_of(ceil_div(ceil_div(most, stretch), warps) * groups);
  };
  with_chunk<T>(width, {dy, dtable}, [&]<int N>(std::integral_constant<int, N>) {
    const unsigned groups = grid_of(ceil_div(width, 32 * N));
    stretch_kernel<N><<<blocks(stretch_warps, groups), dim3(32, stretch_warps), 0, stream>>>(
        order, dy, dtable, width, groups, crossing);
  });
  check_launch(name);
  with_chunk<Compute<T>>(width, {dtable}, [&]<int N>(std::integral_constant<int, N>) {
    const unsigned groups = grid_of(ceil_div(width, 32 * N));
    crossing_kernel<N><<<blocks(crossing_warps, groups), dim3(32, crossing_warps), 0, stream>>>(
        order, dtable, width, groups, crossing);
  });
  check_launch(name);
}

}  // namespace prun::cuda
