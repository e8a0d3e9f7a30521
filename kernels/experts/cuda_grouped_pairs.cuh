// Multiplies groups of rows by pairs of blocks (Hopper): a pair's two tiles lie below each other, so that
// their right factor is the same. Each block copies half of it for both, and its own left factor: reads from
// L2, which four warps together would wait for otherwise, are a third fewer.
#pragma once

#include "cuda/cluster.cuh"
#include "experts/cuda_grouped_jobs.cuh"

namespace prun::cuda::tensor_grouped_parts {

inline constexpr int pair_blocks = 2, pair_copiers = 128;
inline constexpr int strip_bytes = 4096, all_strips_bytes = threads / 32 * strip_bytes;

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

// Clears the rows of a stage's right factor that are not the group's: they may hold anything.
__device__ __forceinline__ void clear_rows(bf16* panels, int from) {
  constexpr int chunks = depth / 8, of_row = columns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < (depth - from) * of_row; i += threads) {
    const int row = from + i / of_row, chunk = i % of_row;
    bf16* const at = SharedRows<depth>{panels + chunk / chunks * panel}.at(row, chunk % chunks);
    *reinterpret_cast<uint4*>(at) = uint4{0, 0, 0, 0};
  }
  show_to_warpgroups();
  asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");  // waits for the threads that multiply
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
      if (rows_there < depth) clear_rows(from.stage() + rows * depth, max(rows_there, 0));
      if constexpr (multiplies) {
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
// A strip is a warp's 16 rows of a part of its tile, in memory that only it uses: values come from threads
// that have two columns of eight rows, and go as whole rows. Chunks of 16 bytes have changed places.
template <class Staged>
struct Strip {
  unsigned char* memory;
  static constexpr int width = strip_bytes / 16 / static_cast<int>(sizeof(Staged)),
                       chunk = 16 / sizeof(Staged);

  __device__ Staged* at(int row, int column) const {
    return reinterpret_cast<Staged*>(memory + row * (strip_bytes / 16) + (column / chunk ^ (row & 7)) * 16) +
           column % chunk;
  }
  __device__ void put(const WarpgroupSums& sums, int part) const {
    const int row = thread_modulo(32) / 4, column = thread_modulo(4) * 2;
#pragma unroll
    for (int j = 0; j < width / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float(&four)[4] = sums.of[part * width / 8 + j];
        store_lanes(at(row + 8 * r, 8 * j + column), Lanes<float, 2>{{four[2 * r], four[2 * r + 1]}});
      }
  }
  template <int count>
  __device__ Lanes<float, count> take(int row, int column) const {
    Lanes<float, count> taken;
#pragma unroll
    for (int i = 0; i < count; i += chunk) {
      const Lanes<float, chunk> some = load_lanes<chunk>(at(row, column + i));
#pragma unroll
      for (int e = 0; e < chunk; ++e) taken[i + e] = some[e];
    }
    return taken;
  }
};

// Says where a lane stores of a strip: the same columns in every `apart`-th row, in whole accesses.
template <class Out, int width>
struct RowsOfLane {
  static constexpr int count = 16 / sizeof(Out), lanes = width / count, apart = 32 / lanes;
  __device__ static int first() { return thread_modulo(32) / lanes; }
  __device__ static int column() { return thread_modulo(lanes) * count; }
};

// Stores a warp's results part after part. The values they are added to are read some parts ahead, those of
// the first parts by begin(), so that no thread waits for them; with outputs in 32 bits there are no
// registers for that.
template <class Job>
class Results {
 public:
  using Out = std::remove_pointer_t<decltype(std::declval<Job>().outputs(std::declval<Tile>()))>;
  using Own = Strip<typename Job::Staged>;
  using At = RowsOfLane<Out, Own::width>;
  static constexpr int parts = columns / Own::width, accesses = 16 / At::apart;
  static constexpr int ahead = sizeof(Out) == 2 ? 3 : 0, buffers = ahead > 0 ? ahead : 1;

  __device__ Results(const Job& of, const Tile& tile)
      : job(of),
        height(of.height(tile.end - tile.begin)),
        width(of.width()),
        top(tile.output_row(thread_over(32) * 16) + At::first()),
        left(tile.column + At::column()),
        to(of.outputs(tile) + static_cast<std::int64_t>(top) * width + left) {}

  __device__ void begin() {
#pragma unroll
    for (int part = 0; part < ahead; ++part) read(part);
  }

  __device__ void put(const WarpgroupSums& sums, const Own& strip) {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (ahead == 0) read(part);
      __syncwarp();
      strip.put(sums, part);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < accesses; ++i) put_rows(strip, part, i);
      if (ahead > 0 && part + ahead < parts) read(part + ahead);
    }
  }

 private:
  __device__ bool there(int part, int i) const {
    return top + i * At::apart < height && left + part * Own::width < width;
  }
  __device__ Out* at(int part, int i) const {
    return to + static_cast<std::int64_t>(i * At::apart) * width + part * Own::width;
  }
  __device__ void read(int part) {
    if (!job.adds()) return;
#pragma unroll
    for (int i = 0; i < accesses; ++i)
      if (there(part, i)) before[part % buffers][i] = load_pack<At::count>(at(part, i));
  }
  __device__ void put_rows(const Own& strip, int part, int i) {
    Lanes<float, At::count> result =
        strip.template take<At::count>(At::first() + i * At::apart, At::column());
    if (job.adds()) {
      const Lanes<float, At::count> more = unpack(before[part % buffers][i]);
#pragma unroll
      for (int e = 0; e < At::count; ++e) result[e] += more[e];
    }
    if (there(part, i)) store_lanes(at(part, i), result);
  }

  const Job& job;
  int height, width, top, left;
  Out* to;
  Pack<Out, At::count> before[buffers][accesses];
};

template <class Job>
__device__ __forceinline__ void multiply_pair(const Job& job, const Schedule& schedule, const Ring& ring,
                                              const PairGates& gates, int rank, unsigned char* strips) {
  const int tiles = schedule.tiles(), stride = static_cast<int>(gridDim.x) / pair_blocks;
  PairConsumer<Job> consumer{gates, ring};
  const Strip<typename Job::Staged> strip{strips + thread_over(32) * strip_bytes};
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
      Results<Job> results(job, tile);
      consumer.template consume<true>(tile, sums, [&] {
        results.begin();
        look_ahead();
      });
      results.put(sums, strip);
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
  auto* const at_gates = reinterpret_cast<std::uint64_t*>(strips + all_strips_bytes);
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
