// Multiplies groups of rows by pairs of blocks (Hopper): a pair's two tiles lie below each other, so that
// their right factor is the same. Each block copies half of it for both, and its own left factor: reads from
// L2, which four warps together would wait for otherwise, are a third fewer.
#pragma once

#include "cuda/cluster.cuh"
#include "experts/cuda_grouped_jobs.cuh"

namespace prun::cuda::tensor_grouped_parts {

inline constexpr int pair_blocks = 2, pair_copiers = 128;

// Counts bytes of what a warp takes results to memory by (Results), and those of all warps.
template <class Job>
inline constexpr int strip_bytes = 16 * Job::strip_row;
template <class Job>
inline constexpr int all_strips_bytes = threads / 32 * strip_bytes<Job>;

// A right factor is copied in boxes of this many rows: of its 256 rows, or of a panel.
template <class Job>
inline constexpr int box_rows = Job::right_turned ? depth : columns / pair_blocks;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Each stage has a gate that opens when both factors are there, and one that opens when both blocks are done
// with it: then each may copy into both. Turns are counted by stage.
struct PairGates {
  std::uint64_t* memory;
  int stages;

  static constexpr int warps = threads / 32;
  __device__ Gate full(int stage) const { return {memory + stage}; }
  __device__ Gate empty(int stage) const { return {memory + stages + stage}; }
  __device__ void begin() const {
    for (int i = 0; threadIdx.x == 0 && i < stages; ++i) {
      full(i).begin(pair_copiers + 1);
      empty(i).begin(pair_blocks * warps);
    }
    show_gates();
    meet_cluster();
  }
  // One thread of each warp must call it.
  __device__ void release(int stage) const {
    for (int rank = 0; rank < pair_blocks; ++rank) arrive_in(empty(stage), rank);
  }
};

// Begins the copies of this block's half of a stage's right factor, for both.
template <class Job>
__device__ __forceinline__ void copy_half(const CUtensorMap& map, const Tile& tile, int step, int rank,
                                          bf16* panels, const Gate& full) {
  const int row = Job::right_row(tile), plane = Job::right_plane(tile);
  constexpr int boxes = columns / depth / pair_blocks;  // counts those of a turned factor
  if constexpr (Job::right_turned) {
#pragma unroll
    for (int i = 0; i < boxes; ++i) {
      const int at = rank * boxes + i;
      copy_box_to_both(panels + at * panel, map, tile.column + at * depth, row + step * depth, plane, full);
    }
  } else {
    copy_box_to_both(panels + rank * boxes * panel, map, step * depth, tile.column + rank * box_rows<Job>,
                     plane, full);
  }
}

template <class Job>
__device__ __forceinline__ void copy_pair(const Job& job, const CUtensorMap& map, const Schedule& schedule,
                                          Ring to, const PairGates& gates, int rank) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x) / pair_blocks;
  const bool first = thread_modulo(pair_copiers) == 0;
  int turn = 0;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x) / pair_blocks; number < tiles; number += stride) {
    const Tile tile = schedule.at(job, number, rank);
    typename Job::template Left<pair_copiers> left;
    left.begin(job, tile);
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step) {
      const Gate full = gates.full(to.now);
      gates.empty(to.now).wait(turn ^ 1);  // passes at once in the first turn
      if (first) {
        arrive_for_bytes(full, columns * depth * 2);
        copy_half<Job>(map, tile, step, rank, to.stage() + rows * depth, full);
      }
      left.copy(job, tile, step, to.stage());
      full.arrive_with_copies();
      to.advance();
      if (to.now == 0) turn ^= 1;
    }
  }
}

// Clears the rows of a stage's right factor that are not the group's: they may hold anything. Both halves of
// the threads that multiply do so, each before its own products.
__device__ __forceinline__ void clear_rows(bf16* panels, int from) {
  constexpr int chunks = depth / 8, of_row = columns / 8;
  for (int i = thread_modulo(128); i < (depth - from) * of_row; i += 128) {
    const int row = from + i / of_row, chunk = i % of_row;
    bf16* const at = SharedRows<depth>{panels + chunk / chunks * panel}.at(row, chunk % chunks);
    *reinterpret_cast<uint4*>(at) = uint4{0, 0, 0, 0};
  }
  show_to_warpgroups();
  meet_threads<128>(1 + thread_over(128));
}

// Holds four warps' 64 rows and all columns.
struct WarpgroupSums {
  float of[columns / 8][4];

  // Begins the products of a stage; the first products of a tile are not added to anything.
  template <class Job>
  __device__ void add(const bf16* stage, bool first) {
    const Factor left(stage + thread_over(128) * panel), right(stage + rows * depth);
    begin_products();
#pragma unroll
    for (int i = 0; i < depth / 16; ++i)
      multiply_async<Job::left_turned, Job::right_turned>(of, left.at<Job::left_turned>(i),
                                                          right.at<Job::right_turned>(i), i > 0 || !first);
    end_products();
  }
};

// One stage is multiplied while the threads wait for the one before it, which is free then. Four warps whose
// half of the tile is below the group's rows only wait.
template <class Job>
struct PairConsumer {
  const PairGates& gates;
  Ring from;
  int turn = 0;

  // Calls `meanwhile` while the last products are under way.
  template <bool multiplies, class Meanwhile>
  __device__ __forceinline__ void consume(const Tile& tile, WarpgroupSums& sums, Meanwhile meanwhile) {
    const bool first_lane = thread_modulo(32) == 0;
    int before = 0;
#pragma unroll 1
    for (int step = 0; step < tile.steps; ++step) {
      gates.full(from.now).wait(turn);
      show_to_warpgroups();
      const int rows_there = Job::right_rows(tile, step);
      if constexpr (multiplies) {
        if (rows_there < depth) clear_rows(from.stage() + rows * depth, max(rows_there, 0));
        sums.template add<Job>(from.stage(), step == 0);
        wait_products<1>();
      }
      if (step > 0 && first_lane) gates.release(before);
      before = from.now;
      from.advance();
      if (from.now == 0) turn ^= 1;
    }
    meanwhile();
    if constexpr (multiplies) wait_products<0>();
    if (first_lane) gates.release(before);
  }
};

// ---------------------------------------------------------------- results
// Takes a warp's 16 rows of results to memory by way of a strip of shared memory that only this warp uses:
// the threads have two columns of a row each, and memory is written in whole rows. What the first part of a
// tile's columns is added to is copied to the strip while the tile is multiplied.
template <class Job>
class Results {
 public:
  __device__ Results(const Job& of, unsigned char* strips)
      : job(of), strip(strips + thread_over(32) * strip_bytes<Job>) {}

  // Has to be called before a tile is multiplied.
  __device__ void begin(const Tile& tile) {
    const int width = job.width(), top = tile.output_row(thread_over(32) * 16);
    rows = job.height(tile.end - tile.begin) - top;
    bytes = (width - tile.column) * static_cast<int>(sizeof(Out));
    to = job.outputs(tile) + static_cast<std::int64_t>(top) * width + tile.column;
    if (job.adds()) fetch(0);
  }

  __device__ void put(const WarpgroupSums& sums) {
    if (job.adds())
      put_parts<true>(sums);
    else
      put_parts<false>(sums);
  }

 private:
  using Out = std::remove_pointer_t<decltype(std::declval<Job>().outputs(std::declval<Tile>()))>;
  static constexpr int row_bytes = Job::strip_row;
  static constexpr int part = row_bytes / static_cast<int>(sizeof(Out)), parts = columns / part;  // columns
  static constexpr int lanes = row_bytes / 16, apart = 32 / lanes;  // lanes that take a row, rows at a time

  template <bool adds>
  __device__ __forceinline__ void put_parts(const WarpgroupSums& sums) {
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      if (adds && i > 0) fetch(i);
      if constexpr (adds) wait_copies<0>();
      __syncwarp();
      if constexpr (sizeof(Out) == 2)
        put_pairs<adds>(sums, i);
      else
        put_words<adds>(sums, i);
      __syncwarp();
      store(i);
    }
  }

  // Chunks of 16 bytes have changed places, so that those of a column are in different banks.
  __device__ unsigned char* in_strip(int row, int byte) const {
    return strip + row * row_bytes + (byte ^ (row & 7) * 16);
  }
  // A lane takes the same 16 bytes of every row, or of every second one.
  __device__ static int own_row() { return thread_modulo(32) / lanes; }
  __device__ static int own_byte() { return thread_modulo(lanes) * 16; }
  __device__ bool has(int i, int row) const { return row < rows && i * row_bytes + own_byte() < bytes; }
  __device__ unsigned char* in_memory(int i, int row) const {
    Out* const from = to + static_cast<std::int64_t>(row) * job.width() + i * part;
    return reinterpret_cast<unsigned char*>(from) + own_byte();
  }
  __device__ void fetch(int i) const {
    __syncwarp();
#pragma unroll 4
    for (int row = own_row(); row < 16; row += apart)
      if (has(i, row)) copy_async(in_strip(row, own_byte()), in_memory(i, row));
    commit_copies();
  }
  __device__ void store(int i) const {
#pragma unroll
    for (int step = 0; step < 16; step += apart) {
      const int row = step + own_row();
      const uint4 own = *reinterpret_cast<const uint4*>(in_strip(row, own_byte()));
      if (has(i, row)) *reinterpret_cast<uint4*>(in_memory(i, row)) = own;
    }
  }

  // Puts bf16 by fours of matrices of 8 x 8: those of all 16 rows and of 16 columns.
  template <bool adds>
  __device__ __forceinline__ void put_pairs(const WarpgroupSums& sums, int i) const {
    const int row = thread_modulo(16), chunk = thread_modulo(32) / 16 * 16;
#pragma unroll
    for (int j = 0; j < part / 8; j += 2) {
      Pair four[4];
      unsigned char* const at = in_strip(row, j * 16 + chunk);
      if constexpr (adds) load_matrices(four, at);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float(&own)[4] = sums.of[i * part / 8 + j + e / 2];
        Lanes<float, 2> sum{{own[e % 2 * 2], own[e % 2 * 2 + 1]}};
        if constexpr (adds) sum = added(sum, unpack(Pack<bf16, 2>{{four[e]}}));
        four[e] = pack<bf16>(sum).word[0];
      }
      store_matrices(at, four);
    }
  }
  // Puts values in 32 bits, two at a time, as a thread has them.
  template <bool adds>
  __device__ __forceinline__ void put_words(const WarpgroupSums& sums, int i) const {
    const int row = thread_modulo(32) / 4, byte = thread_modulo(4) * 8;
#pragma unroll
    for (int j = 0; j < part / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        auto* const to_strip = reinterpret_cast<Out*>(in_strip(row + 8 * r, j * 32 + byte));
        const float(&own)[4] = sums.of[i * part / 8 + j];
        Lanes<float, 2> sum{{own[2 * r], own[2 * r + 1]}};
        if constexpr (adds) sum = added(sum, load_lanes<2>(to_strip));
        store_lanes(to_strip, sum);
      }
  }
  __device__ static Lanes<float, 2> added(const Lanes<float, 2>& a, const Lanes<float, 2>& b) {
    return {{a[0] + b[0], a[1] + b[1]}};
  }

  const Job& job;
  unsigned char* strip;
  Out* to;          // has the first row and column of the warp's results
  int rows, bytes;  // count what there is from there on to the ends of the group and of a row
};

template <class Job>
__device__ __forceinline__ void multiply_pair(const Job& job, const Schedule& schedule, const Ring& ring,
                                              const PairGates& gates, int rank, unsigned char* strips) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x) / pair_blocks;
  PairConsumer<Job> consumer{gates, ring};
  Results<Job> results(job, strips);
  int number = static_cast<int>(blockIdx.x) / pair_blocks;
  Tile tile = schedule.at(job, number, rank);
#pragma unroll 1
  while (number < tiles) {
    Tile next = tile;
    const auto look_ahead = [&] {
      number += stride;
      if (number < tiles) next = schedule.at(job, number, rank);
    };
    WarpgroupSums sums;
    if (tile.output_row(thread_over(128) * half) < job.height(tile.end - tile.begin)) {
      results.begin(tile);
      consumer.template consume<true>(tile, sums, look_ahead);
      results.put(sums);
    } else {
      consumer.template consume<false>(tile, sums, look_ahead);
    }
    tile = next;
  }
}
#endif

template <class Job>
__global__ __launch_bounds__(threads + pair_copiers,
                             1) void pair_kernel(const __grid_constant__ Job job,
                                                 const __grid_constant__ CUtensorMap right,
                                                 const __grid_constant__ RowGroups groups, int stages) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  const Ring ring{reinterpret_cast<bf16*>(memory), stages};
  unsigned char* const strips = memory + stages * stage_elements * 2;
  auto* const at_gates = reinterpret_cast<std::uint64_t*>(strips + all_strips_bytes<Job>);
  const Schedule schedule(job, groups, at_gates + 2 * stages, pair_blocks);
  if (static_cast<int>(blockIdx.x) / pair_blocks >= schedule.tiles()) return;
  const PairGates gates{at_gates, stages};
  const int rank = cluster_rank();
  gates.begin();
  if (threadIdx.x >= threads) {
    keep_registers<40>();
    copy_pair(job, right, schedule, ring, gates, rank);
  } else {
    take_registers<232>();
    multiply_pair(job, schedule, ring, gates, rank, strips);
  }
  meet_cluster();  // before its shared memory goes, the other block must be done with it
#endif
}

}  // namespace prun::cuda::tensor_grouped_parts
