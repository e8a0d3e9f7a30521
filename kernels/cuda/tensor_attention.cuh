// What attention on tensor cores is built from. A block keeps some rows, 16 for each of its row warps, and
// meets tiles of other rows of the same width, several of which are copied ahead. Where there are more warps
// than rows need, they are groups: each takes its part of every tile, and their sums are added up at the end.
#pragma once

#include "cuda/async.cuh"
#include "cuda/attention_rows.cuh"
#include "cuda/tensor_core.cuh"

namespace prun::cuda::tensor_attention_parts {

// `inner` rows of a tile for each group; `stages` tiles at a time in shared memory; a multiprocessor holds
// `blocks` blocks.
template <int Width, int RowWarps, int Groups, int Inner, int Stages, int Blocks>
struct Form {
  static constexpr int width = Width, rows = 16 * RowWarps, row_warps = RowWarps, groups = Groups;
  static constexpr int warps = RowWarps * Groups, threads = 32 * warps, inner = Inner, tile = Inner * Groups;
  static constexpr int stages = Stages, blocks = Blocks;
  static constexpr int columns = Width / 8;  // tiles of 8 of a row
  static_assert(Width % 64 == 0 && Inner % 16 == 0 && Stages >= 2);

  using Scores = float[Inner / 8][4];
  using Weights = Pair[Inner / 16][4];
  using Sums = float[columns][4];
};

// The calling thread's place.
template <class Form>
struct Place {
  int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int group = warp / Form::row_warps;
  int strip = warp % Form::row_warps * 16;  // where its 16 rows begin in the block's
};

// Rows in shared memory. Chunks of 16 bytes have changed places in each row, so that eight rows' chunks of
// one column are in different banks.
template <int width>
struct SharedRows {
  bf16* data;

  __device__ bf16* at(int row, int chunk) const { return data + row * width + (chunk ^ row % 8) * 8; }
  // The matrices of 16 rows from `row` on and 16 channels from 8 * chunk on, as load_matrices() wants them
  // for the left factor of a product, and of the right one where its rows are columns.
  __device__ const bf16* left(int row, int chunk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return at(row + lane % 16, chunk + lane / 16);
  }
  __device__ const bf16* right(int row, int chunk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return at(row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2);
  }
};

// Begins to copy rows [first, first + rows); those beyond seq become zero.
template <int rows, int width, int threads>
__device__ void copy_rows(const Rows<const bf16>& from, int first, int seq, SharedRows<width> to) {
  constexpr int chunks = width / 8;
#pragma unroll
  for (int u = 0; u < rows * chunks; u += threads) {
    const int at = u + static_cast<int>(threadIdx.x), row = at / chunks, c = at % chunks;
    if (rows * chunks % threads != 0 && at >= rows * chunks) break;
    if (first + row < seq)
      copy_async(to.at(row, c), from.first + (first + row) * from.stride + c * 8);
    else
      store_pack(to.at(row, c), Pack<bf16, 8>{});
  }
}

// Begins to copy numbers [first, first + n) of a row of seq; those beyond it become `rest`.
template <int n, int threads, class T>
__device__ void copy_numbers(const T* from, int first, int seq, T rest, T* to) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += threads)
    if (first + i < seq)
      copy_word_async(to + i, from + first + i);
    else
      to[i] = rest;
}

// ---------------------------------------------------------------- products
// 16 rows as the left factor.
template <int width>
struct Strip {
  Pair of[width / 16][4];

  __device__ void load(SharedRows<width> from, int row) {
#pragma unroll
    for (int k = 0; k < width / 16; ++k) load_matrices(of[k], from.left(row, 2 * k));
  }
};

template <int n>
__device__ void clear(float (&sums)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[i][e] = 0;
}

// scores = strip x rows^T, of rows from `row` on, 8 for each of n columns.
template <int n, int width>
__device__ void dot_rows(const Strip<width>& strip, SharedRows<width> rows, int row, float (&scores)[n][4]) {
  clear(scores);
#pragma unroll
  for (int k = 0; k < width / 16; ++k)
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      Pair right[4];
      load_matrices(right, rows.right(row + 8 * i, 2 * k));
      multiply_add(scores[i], strip.of[k], right[0], right[1]);
      multiply_add(scores[i + 1], strip.of[k], right[2], right[3]);
    }
}

__device__ __forceinline__ Pair pair_of(float first, float second) {
  return pack<bf16>(Lanes<float, 2>{{first, second}}).word[0];
}

// As the left factor.
template <int n>
__device__ void round_scores(const float (&scores)[2 * n][4], Pair (&weights)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      weights[i][e] = pair_of(scores[2 * i + e / 2][e % 2 * 2], scores[2 * i + e / 2][e % 2 * 2 + 1]);
}

// sums += weights x rows, from `row` on.
template <int n, int width>
__device__ void add_rows(const Pair (&weights)[n][4], SharedRows<width> rows, int row,
                         float (&sums)[width / 8][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int c = 0; c < width / 8; c += 2) {
      Pair right[4];
      load_matrices_turned(right, rows.left(row + 16 * i, c));
      multiply_add(sums[c], weights[i], right[0], right[1]);
      multiply_add(sums[c + 1], weights[i], right[2], right[3]);
    }
}

template <class Combine>
__device__ float quad_fold(float x, Combine combine) {
  x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Of 16 rows from `row` on, each row's product with the same row of another tile: those of rows lane / 4 and
// lane / 4 + 8. It is the diagonal of a product, which costs less than to unpack the rows.
template <int width>
__device__ void dot_same_rows(const Strip<width>& strip, SharedRows<width> rows, int row, float (&dots)[2]) {
  float product[2][4];
  dot_rows(strip, rows, row, product);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool mine = lane % 4 == lane / 8, odd = lane / 4 % 2 != 0;
  const float first = odd ? product[0][1] : product[0][0], last = odd ? product[1][3] : product[1][2];
  dots[0] = quad_fold(mine ? first : 0.0f, Add());
  dots[1] = quad_fold(mine ? last : 0.0f, Add());
}

// ---------------------------------------------------------------- results
// Four lanes hold pairs of four columns each; afterwards each has all pairs of one column.
__device__ __forceinline__ void turn_quad(Pair (&words)[4]) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      Pair& low = words[i];
      Pair& high = words[i + distance];
      const Pair other = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
      if (upper)
        low = other;
      else
        high = other;
    }
  }
}

// Stores factors[i] x row lane / 4 + 8 i of a strip whose first row is that of this position.
template <int n>
__device__ void store_strip(const float (&sums)[n][4], const float (&factors)[2], const Rows<bf16>& to,
                            int position, int seq) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = position + lane / 4 + 8 * half;
    bf16* const at = to.first + row * to.stride + lane % 4 * 8;
#pragma unroll
    for (int c = 0; c < n; c += 4) {
      Pair words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pair_of(factors[half] * sums[c + i][2 * half], factors[half] * sums[c + i][2 * half + 1]);
      turn_quad(words);
      if (row < seq) store_pack(at + c * 8, Pack<bf16, 8>{{words[0], words[1], words[2], words[3]}});
    }
  }
}

// Where groups leave what the first one takes in: n numbers of each thread.
template <class Form, int n>
struct Handover {
  static constexpr int bytes = (Form::groups - 1) * n * 32 * Form::row_warps * 4;
  float* memory;

  __device__ float* of(int group, int number) const {
    const int thread = static_cast<int>(threadIdx.x) % (32 * Form::row_warps);
    return memory + ((group - 1) * n + number) * 32 * Form::row_warps + thread;
  }
  template <int count>
  __device__ void leave(int group, const float (&sums)[count][4], int first) const {
#pragma unroll
    for (int i = 0; i < 4 * count; ++i) *of(group, first + i) = sums[i / 4][i % 4];
  }
  template <int count>
  __device__ void add(int group, float factor0, float factor1, float (&sums)[count][4], int first) const {
#pragma unroll
    for (int i = 0; i < 4 * count; ++i)
      sums[i / 4][i % 4] += (i % 4 < 2 ? factor0 : factor1) * *of(group, first + i);
  }
};

// ---------------------------------------------------------------- the host's side
inline bool takes_shape(const AttentionShape& shape) {
  constexpr std::int64_t longest = std::int64_t{1} << 30;  // positions are counted in int
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.seq <= longest;
}

// Lets the kernel use so much shared memory.
template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory for attention on tensor cores");
}

}  // namespace prun::cuda::tensor_attention_parts
