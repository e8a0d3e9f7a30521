// Orders tokens by the row of a table that they name, in one launch: those of a row stand together, in the
// tokens' order. A block has the rows whose numbers are alike in their last bits, so that frequent tokens,
// whose numbers are often neighbours, are shared out. Each block reads all tokens twice, from the L2 cache:
// it counts its own and those of the blocks before it, then puts its own where no other block does. So the
// order is the same every time, and no block waits for another.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

struct RowOrder {
  std::int32_t* rows;    // are by place in the order
  std::int32_t* places;  // say which token it is
  std::int32_t* count;   // tells how many tokens name rows of the table: the others are left out
};

inline constexpr int order_warps = 32, order_threads = 32 * order_warps, order_unroll = 8;
inline constexpr int most_order_bits = 7, tokens_worth_a_block = 128;

// Says which rows are a block's: those with its number in their last `bits` bits, at most order_threads.
struct RowShare {
  std::int32_t count;             // of tokens
  std::uint32_t rows, first_row;  // of the table
  std::int32_t left_out;          // a token that names no row
  int bits = 0;

  RowShare(std::int64_t tokens, std::int64_t table_rows, std::int64_t first, std::int64_t without)
      : count(static_cast<std::int32_t>(tokens)),
        rows(static_cast<std::uint32_t>(table_rows)),
        first_row(static_cast<std::uint32_t>(first)),
        left_out(static_cast<std::int32_t>(without)) {
    constexpr std::int64_t limit = std::int64_t{1} << 31;
    PRUN_CHECK(tokens < limit && first + table_rows < limit, tokens, " tokens, ", table_rows, " rows");
    while (ceil_div(table_rows, blocks()) > order_threads ||
           (bits < most_order_bits && tokens_worth_a_block * blocks() < tokens))
      ++bits;
  }
  std::int64_t blocks() const { return std::int64_t{1} << bits; }
  int rows_of_a_block() const { return static_cast<int>(ceil_div(rows, blocks())); }
};

// Calls take(i, row), for each token of the warp's part of all, with its row of the table; `no_row`: it has
// none, or there is no token. All lanes of the warp are there.
inline constexpr std::uint32_t no_row = 0xffffffff;
template <class Take>
__device__ void for_tokens_of_warp(const std::int32_t* tokens, const RowShare& share, Take take) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t part = (static_cast<std::int64_t>(share.count) + order_threads - 1) / order_threads * 32;
  const std::int64_t begin = warp * part, end = begin + part < share.count ? begin + part : share.count;
  for (std::int64_t first = begin; first < end; first += 32 * order_unroll) {
    std::uint32_t row[order_unroll];
#pragma unroll
    for (int u = 0; u < order_unroll; ++u) {
      const std::int64_t i = first + u * 32 + lane;
      const std::int32_t token = i < end ? tokens[i] : share.left_out;
      row[u] = token != share.left_out ? static_cast<std::uint32_t>(token) - share.first_row : no_row;
    }
#pragma unroll
    for (int u = 0; u < order_unroll; ++u) take(first + u * 32 + lane, row[u] < share.rows ? row[u] : no_row);
  }
}

// Returns the sum over the threads before this one. `scratch`, 32 values, must not be in use.
__device__ inline int sum_before(int value, int* scratch) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0, sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane & distance) before += other;
    sum += other;
  }
  if (lane == 0) scratch[warp] = sum;
  __syncthreads();
  return before + warp_fold(lane < warp ? scratch[lane] : 0, Add());
}

// Turns the warps' counts [order_warps][rows] into the places where each warp's first token of each row goes.
__device__ inline void counts_to_places(int* counts, int rows, int first, int* scratch) {
  const int mine = static_cast<int>(threadIdx.x);
  int all = 0;
  if (mine < rows)
    for (int warp = 0; warp < order_warps; ++warp) all += counts[warp * rows + mine];
  int place = first + sum_before(all, scratch);
  if (mine < rows)
    for (int warp = 0; warp < order_warps; ++warp) {
      const int here = counts[warp * rows + mine];
      counts[warp * rows + mine] = place;
      place += here;
    }
}

// Adds to the warp's counts the tokens of its lanes that are the block's, and calls put(place) in their lanes
// with what the row's count was and how many lanes before name the same row. One lane alone has a row's
// count.
template <class Put>
__device__ void count_tokens(std::uint32_t row, int bits, int* own_counts, Put put) {
  constexpr unsigned all = 0xffffffff;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool own = row != no_row && (row & ((1u << bits) - 1)) == blockIdx.x;
  for (unsigned left = __ballot_sync(all, own); left != 0;) {
    const std::uint32_t number = __shfl_sync(all, row, __ffs(static_cast<int>(left)) - 1) >> bits;
    const bool alike = own && row >> bits == number;
    const unsigned lanes = __ballot_sync(all, alike);
    const int keeper = static_cast<int>(number % 32);
    int before = 0;
    if (lane == keeper) {
      before = own_counts[number];
      own_counts[number] = before + __popc(lanes);
    }
    before = __shfl_sync(all, before, keeper);
    if (alike) put(before + __popc(lanes & ((1u << lane) - 1)));
    left &= ~lanes;
  }
}

static __global__ __launch_bounds__(order_threads) void row_order_kernel(const std::int32_t* tokens,
                                                                         RowShare share, int rows,
                                                                         RowOrder order) {
  extern __shared__ int counts[];  // [order_warps][rows]
  __shared__ int scratch[3][32];
  int* const own_counts = counts + static_cast<int>(threadIdx.x) / 32 * rows;
  for (int i = static_cast<int>(threadIdx.x); i < order_warps * rows; i += order_threads) counts[i] = 0;
  __syncthreads();

  int in_front = 0, inside = 0;
  for_tokens_of_warp(tokens, share, [&](std::int64_t, std::uint32_t row) {
    inside += row != no_row ? 1 : 0;
    in_front += row != no_row && (row & ((1u << share.bits) - 1)) < blockIdx.x ? 1 : 0;
    count_tokens(row, share.bits, own_counts, [](int) {});
  });
  inside = block_fold(inside, 0, Add(), scratch[0]);
  in_front = block_fold(in_front, 0, Add(), scratch[1]);
  if (blockIdx.x == 0 && threadIdx.x == 0) *order.count = inside;
  __syncthreads();
  counts_to_places(counts, rows, in_front, scratch[2]);
  __syncthreads();
  for_tokens_of_warp(tokens, share, [&](std::int64_t i, std::uint32_t row) {
    count_tokens(row, share.bits, own_counts, [&](int place) {
      order.rows[place] = static_cast<std::int32_t>(row);
      order.places[place] = static_cast<std::int32_t>(i);
    });
  });
}

// Needs space for `tokens` numbers in both lists.
inline void order_by_row(const std::int32_t* tokens, const RowShare& share, const RowOrder& order,
                         Stream stream) {
  const int rows = share.rows_of_a_block();
  const int shared = order_warps * rows * static_cast<int>(sizeof(int));
  check(cudaFuncSetAttribute(row_order_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        "row_order");
  row_order_kernel<<<grid_of(share.blocks()), order_threads, static_cast<std::size_t>(shared), stream>>>(
      tokens, share, rows, order);
  check_launch("row_order");
}

}  // namespace prun::cuda
