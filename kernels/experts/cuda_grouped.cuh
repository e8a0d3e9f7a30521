// Holds the parts of which products of groups of rows on tensor cores are built. A block computes tiles of
// 128 x 256 outputs one after the other, 64 channels at a time; the copies of the next stages, be they of the
// same tile or of the next, are under way meanwhile. In shared memory a stage is panels of 64 x 64, those of
// the left factor and those of the right, as they are in memory: rows by channels, or, turned, channels by
// rows.
#pragma once

#include "cuda/async.cuh"
#include "cuda/device.cuh"
#include "cuda/shared_rows.cuh"
#include "cuda/tensor_core.cuh"
#include "experts/cuda_grouped.hpp"

namespace prun::cuda::tensor_grouped_parts {

inline constexpr int rows = 128, columns = 256, depth = 64, threads = 256;  // counts threads that multiply
inline constexpr int panel = depth * depth;                                 // counts elements
inline constexpr int half = rows / 2;                                       // of a tile: those of four warps
inline constexpr int stage_elements = (rows + columns) * depth;
inline constexpr int high = 16;  // counts tiles of rows that are neighbours in the order of tiles

__device__ __forceinline__ int over(int extent, int size) { return (extent + size - 1) / size; }

// ---------------------------------------------------------------- what there is to do
struct Tile {
  int group, begin, end;  // are rows of the group
  int row, column;        // those of the group's outputs
  int apart;              // counts rows from one half's first to the other's
  int steps;

  __device__ int output_row(int own) const { return row + own / half * apart + own % half; }
};

// Lists the tiles of all groups, numbered group after group. A block takes every gridDim.x-th, or a pair of
// blocks takes two below each other: then each has every other half, so that both have as much to do at a
// group's end.
struct Schedule {
  std::int32_t* begin;  // that of each group's rows, and the end
  std::int32_t* first;  // the first tile of each group, and how many there are
  int groups, sharers;

  static std::int64_t bytes(std::int64_t groups) { return 2 * (groups + 1) * 4; }

  template <class Job>
  __device__ Schedule(const Job& job, const RowGroups& of, void* memory, int blocks = 1)
      : begin(static_cast<std::int32_t*>(memory)),
        first(begin + of.groups + 1),
        groups(static_cast<int>(of.groups)),
        sharers(blocks) {
    for (int g = static_cast<int>(threadIdx.x); g <= groups; g += static_cast<int>(blockDim.x))
      begin[g] = of.begin[g];
    __syncthreads();
    const int across = over(job.width(), columns);
    for (int g = static_cast<int>(threadIdx.x); g <= groups; g += static_cast<int>(blockDim.x)) {
      int before = 0;
      for (int i = 0; i < g; ++i) before += down(job.height(begin[i + 1] - begin[i])) * across;
      first[g] = before;
    }
    __syncthreads();
  }

  __device__ int tiles() const { return first[groups]; }

  // Returns the tile of the block of this rank among those that share it.
  template <class Job>
  __device__ Tile at(const Job& job, int number, int rank = 0) const {
    int low = 0;  // the last group whose tiles begin at or before it
    for (int end = groups; end - low > 1;) {
      const int middle = (low + end) / 2;
      (first[middle] <= number ? low : end) = middle;
    }
    const int own = begin[low + 1] - begin[low], across = over(job.width(), columns);
    const int neighbours = high / sharers, rest = number - first[low];
    const int top = rest / (neighbours * across) * neighbours;
    const int among = min(neighbours, down(job.height(own)) - top), at = rest - top * across;
    return {low,
            begin[low],
            begin[low + 1],
            (top + at % among) * rows * sharers + rank * half,
            at / among * columns,
            half * sharers,
            over(job.channels(own), depth)};
  }

 private:
  __device__ int down(int height) const { return over(height, rows * sharers); }
};

// ---------------------------------------------------------------- stages
// Holds the stages of shared memory, which are used one after the other and again.
struct Ring {
  bf16* memory;
  int stages, now = 0;

  __device__ bf16* stage() const { return memory + now * stage_elements; }
  __device__ void advance() { now = now + 1 == stages ? 0 : now + 1; }
};

// Waits for the oldest of the `ahead` stages whose copies this thread has begun.
__device__ __forceinline__ void wait_for_stage(int ahead) {
  if (ahead == 3)
    wait_copies<2>();
  else if (ahead == 2)
    wait_copies<1>();
  else
    wait_copies<0>();
}

// Says which part of a panel one of `copiers` threads copies: the same chunk of eight in every (copiers /
// 8)-th row.
template <int copiers>
struct Share {
  static constexpr int rows = copiers / 8, of_panel = depth / rows;
  static constexpr int turn = rows * depth;  // counts elements from one of its chunks to its next

  __device__ static int row() { return thread_modulo(copiers) / 8; }
  __device__ static int channel() { return thread_modulo(8) * 8; }
  __device__ static bf16* chunk(bf16* panels) {
    return SharedRows<depth>{panels}.at(row(), thread_modulo(8));
  }
};

__device__ __forceinline__ int mapped(const MappedRows& from, int row, int end) {
  if (row >= end) return -1;
  return from.map ? from.map[row] : row;
}

// Begins the copies of a block's tiles, stage after stage; they run ahead of the products.
template <class Job>
struct Producer {
  const Job& job;
  const Schedule& schedule;
  Ring to;
  typename Job::template Left<threads> left;
  typename Job::template Right<threads> right;
  Tile tile;
  int number, step = 0;

  __device__ Producer(const Job& of, const Schedule& all, const Ring& ring)
      : job(of), schedule(all), to(ring), number(static_cast<int>(blockIdx.x)) {
    begin_tile();
  }

  __device__ void copy_stage() {
    if (has_more()) copy();
    commit_copies();
  }

 private:
  __device__ bool has_more() const { return number < schedule.tiles(); }

  __device__ void copy() {
    left.copy(job, tile, step, to.stage());
    right.copy(job, tile, step, to.stage() + rows * depth);
    to.advance();
    if (++step < tile.steps) return;
    number += static_cast<int>(gridDim.x);
    step = 0;
    begin_tile();
  }

  __device__ void begin_tile() {
    if (!has_more()) return;
    tile = schedule.at(job, number);
    left.begin(job, tile);
    right.begin(job, tile);
  }
};

// ---------------------------------------------------------------- products of a warp
// Holds a warp's 64 rows and 64 columns of a stage, 16 channels: a panel of each factor.
template <class Job>
struct Factors {
  Pair left[4][4], right[4][4];

  __device__ void load(bf16* stage, int sixteen) {
    const SharedRows<depth> of_left{stage + thread_over(128) * panel},
        of_right{stage + rows * depth + thread_modulo(128) / 32 * panel};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Job::left_turned)
        load_matrices_turned(left[i], of_left.right(16 * sixteen, 2 * i));
      else
        load_matrices(left[i], of_left.left(16 * i, 2 * sixteen));
      if constexpr (Job::right_turned)
        load_matrices_turned(right[i], of_right.left(16 * sixteen, 2 * i));
      else
        load_matrices(right[i], of_right.right(16 * i, 2 * sixteen));
    }
  }
};

struct WarpSums {
  static constexpr int strips = 4, eights = 8;
  float of[strips][eights][4];

  __device__ static int row(int strip) { return thread_over(128) * 64 + strip * 16 + thread_modulo(32) / 4; }
  __device__ static int column() { return thread_modulo(128) / 32 * 64; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < strips; ++i)
#pragma unroll
      for (int j = 0; j < eights; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) of[i][j][e] = 0;
  }

  template <class Job>
  __device__ void add(const Factors<Job>& by) {
#pragma unroll
    for (int i = 0; i < strips; ++i)
#pragma unroll
      for (int j = 0; j < eights; ++j)
        multiply_add(of[i][j], by.left[i], by.right[j / 2][j % 2 * 2], by.right[j / 2][j % 2 * 2 + 1]);
  }
};

// ---------------------------------------------------------------- results

// Prefetches the values to which a tile's outputs will be added, so that they are in a near cache then.
// Threads take rows.
template <int copiers, class Job>
__device__ void fetch_outputs(const Job& job, const Tile& tile) {
  const int height = job.height(tile.end - tile.begin), width = job.width();
  auto* const to = job.outputs(tile);
  constexpr int line = 128 / static_cast<int>(sizeof(*to)), lines = columns / line;
  for (int i = thread_modulo(copiers); i < rows * lines; i += copiers) {
    const int row = tile.output_row(i / lines), column = tile.column + i % lines * line;
    if (row < height && column < width) fetch(to + static_cast<std::int64_t>(row) * width + column);
  }
}

// A thread has two columns of each of two neighbouring tiles of 8 columns. This gives it four of one tile, of
// the first where the thread's number is even.
__device__ __forceinline__ Lanes<float, 4> four_of(const float (&first)[4], const float (&second)[4], int r) {
  const bool odd = thread_modulo(2) != 0;
  Lanes<float, 4> four;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float own = odd ? second[2 * r + e] : first[2 * r + e];
    const float other = __shfl_xor_sync(0xffffffffu, odd ? first[2 * r + e] : second[2 * r + e], 1);
    four[e] = odd ? other : own;
    four[2 + e] = odd ? own : other;
  }
  return four;
}

// Stores a row's columns, or adds them to the values there: all reads are under way at once.
template <int count, class Out>
__device__ __forceinline__ void put_row(Out* row, int column, int width, bool adds,
                                        Lanes<float, 4> (&fours)[count]) {
  if (adds) {
    Lanes<float, 4> more[count];
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (column + 16 * i < width) more[i] = load_lanes<4>(row + column + 16 * i);
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) fours[i][e] += more[i][e];
  }
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (column + 16 * i < width) store_lanes(row + column + 16 * i, fours[i]);
}

template <class Job>
__device__ void put_tile(const Job& job, const Tile& tile, const WarpSums& sums) {
  constexpr int count = WarpSums::eights / 2;
  const int column = tile.column + WarpSums::column() + thread_modulo(2) * 8 + thread_modulo(4) / 2 * 4;
  const int height = job.height(tile.end - tile.begin), width = job.width();
#pragma unroll
  for (int strip = 0; strip < WarpSums::strips; ++strip)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = tile.output_row(WarpSums::row(strip) + 8 * r);
      auto* const to = job.outputs(tile) + static_cast<std::int64_t>(row) * width;
      Lanes<float, 4> fours[count];
#pragma unroll
      for (int i = 0; i < count; ++i) fours[i] = four_of(sums.of[strip][2 * i], sums.of[strip][2 * i + 1], r);
      if (row < height) put_row(to, column, width, job.adds(), fours);
    }
}

}  // namespace prun::cuda::tensor_grouped_parts
