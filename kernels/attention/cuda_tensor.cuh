// Holds what attention on tensor cores is built from. A block keeps some rows, 16 for each of its row warps,
// and meets tiles of other rows of the same width, several of which are copied ahead. Where there are more
// warps than rows need, they are groups: each takes its part of every tile, and their sums are added up at
// the end.
#pragma once

#include "attention/cuda_bias.hpp"
#include "attention/cuda_rows.cuh"
#include "cuda/async.cuh"
#include "cuda/shared_rows.cuh"
#include "cuda/tensor_core.cuh"

namespace prun::cuda::tensor_attention_parts {

// Each group has `inner` rows of a tile; `stages` tiles at a time are in shared memory; a multiprocessor
// holds `blocks` blocks.
template <class T, int Width, int RowWarps, int Groups, int Inner, int Stages, int Blocks>
struct Form {
  using Value = T;  // bf16 or fp16
  static constexpr int width = Width, rows = 16 * RowWarps, row_warps = RowWarps, groups = Groups;
  static constexpr int warps = RowWarps * Groups, threads = 32 * warps, inner = Inner, tile = Inner * Groups;
  static constexpr int stages = Stages, blocks = Blocks;
  static constexpr int columns = Width / 8;  // counts tiles of 8 columns in a row
  static constexpr float scale = Width == 64 ? 0.125f : 0.0883883476f;
  static_assert(is_half<T> && (Width == 64 || Width == 128) && Inner % 16 == 0 && Stages >= 2);

  using Scores = float[Inner / 8][4];
  using Weights = Pair[Inner / 16][4];
  using Sums = float[columns][4];
};

// Says where the calling thread is.
template <class Form>
struct Place {
  int lane = thread_modulo(32), warp = thread_over(32);
  int group = thread_over(32 * Form::row_warps);
  int strip = thread_modulo(32 * Form::row_warps) / 32 * 16;  // says where its 16 rows begin in the block's
  int row = thread_modulo(32) / 4;                            // in a tile of 8; the other is next to it
  int column = thread_modulo(4) * 2;                          // of a tile of 8; the other one is next to it
};

// Describes rows of a head as a thread copies them: it takes one chunk in each row that is its turn.
template <class Form>
struct Source {
  using T = typename Form::Value;
  static constexpr unsigned chunks = Form::width / 8;
  static constexpr int step = Form::threads / static_cast<int>(chunks);
  static_assert(step % 8 == 0);  // must be whole turns of SharedRows
  const T* own;
  std::int64_t stride;

  __device__ explicit Source(const Rows<const T>& rows)
      : own(rows.first + thread_over(chunks) * rows.stride + thread_modulo(chunks) * 8),
        stride(rows.stride) {}

  // Begins to copy rows [first, first + rows); those beyond seq become zero.
  template <int rows>
  __device__ void copy(int first, int seq, SharedRows<Form::width, T> to) const {
    static_assert(rows % step == 0);
    T* const shared = to.at(thread_over(chunks), thread_modulo(chunks));
    const T* from = own + first * stride;
    const int left = seq - first - thread_over(chunks);
#pragma unroll
    for (int row = 0; row < rows; row += step, from += step * stride)
      copy_or_clear_async(shared + row * Form::width, from, row < left);
  }
};

// Begins to copy numbers [first, first + n) of a row of seq; those beyond it become `rest`.
template <int n, int threads, class T>
__device__ void copy_numbers(const T* from, int first, int seq, T rest, T* to) {
  for (int i = thread_modulo(threads); i < n; i += threads)
    if (first + i < seq)
      copy_word_async(to + i, from + first + i);
    else
      to[i] = rest;
}

// Returns the end of the keys that queries up to `last` see; the shape counts its keys (with_keys).
template <bool late>
__device__ int end_of_keys(const AttentionShape& shape, int last) {
  return shape.causal && last < static_cast<int>(shape.seq) ? keys_ahead<late>(shape) + last + 1
                                                            : static_cast<int>(shape.keys);
}

// ---------------------------------------------------------------- products
// Holds 16 rows as the left factor.
template <int width, class T>
struct Strip {
  Pair of[width / 16][4];

  __device__ void load(SharedRows<width, T> from, int row) {
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

// Computes scores = strip x rows^T, for rows from `row` on, 8 for each of n columns.
template <int n, int width, class T>
__device__ void dot_rows(const Strip<width, T>& strip, SharedRows<width, T> rows, int row,
                         float (&scores)[n][4]) {
  clear(scores);
#pragma unroll
  for (int k = 0; k < width / 16; ++k)
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      Pair right[4];
      load_matrices(right, rows.right(row + 8 * i, 2 * k));
      multiply_add<T>(scores[i], strip.of[k], right[0], right[1]);
      multiply_add<T>(scores[i + 1], strip.of[k], right[2], right[3]);
    }
}

template <class T>
__device__ __forceinline__ Pair pair_of(float first, float second) {
  return pack<T>(Lanes<float, 2>{{first, second}}).word[0];
}

// Rounds scores into a left factor.
template <class T, int n>
__device__ void round_scores(const float (&scores)[2 * n][4], Pair (&weights)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      weights[i][e] = pair_of<T>(scores[2 * i + e / 2][e % 2 * 2], scores[2 * i + e / 2][e % 2 * 2 + 1]);
}

// Computes sums += weights x rows, from `row` on.
template <int n, int width, class T>
__device__ void add_rows(const Pair (&weights)[n][4], SharedRows<width, T> rows, int row,
                         float (&sums)[width / 8][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int c = 0; c < width / 8; c += 2) {
      Pair right[4];
      load_matrices_turned(right, rows.left(row + 16 * i, c));
      multiply_add<T>(sums[c], weights[i], right[0], right[1]);
      multiply_add<T>(sums[c + 1], weights[i], right[2], right[3]);
    }
}

// Returns a thread's scores of 16 rows by 8 columns for each of n, scaled, with the bias of each added;
// `distance` is that of its first column's key from its first row's query.
template <int n>
__device__ void add_biases(const Biases<float>& biases, unsigned head, int distance, float (&scores)[n][4]) {
  const float* const own = biases.of_head(head) + distance;
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[i][e] = biases.scale * scores[i][e] + own[8 * i + e % 2 - e / 2 * 8];
}
// Does the same for scores that lie [key, query].
template <int n>
__device__ void add_biases_of_keys(const Biases<float>& biases, unsigned head, int distance,
                                   float (&scores)[n][4]) {
  const float* const own = biases.of_head(head) + distance;
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[i][e] = biases.scale * scores[i][e] + own[e / 2 * 8 - 8 * i - e % 2];
}

template <class Combine>
__device__ float quad_fold(float x, Combine combine) {
  x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Computes, for a strip's rows lane / 4 and lane / 4 + 8, each row's product with the same row of 16 others.
// It is the diagonal of a product, which costs less than to unpack the rows.
template <int width, class T>
__device__ void dot_same_rows(const Strip<width, T>& strip, SharedRows<width, T> rows, int row,
                              float (&dots)[2]) {
  float product[2][4];
  dot_rows(strip, rows, row, product);
  const bool mine = thread_modulo(4) == thread_modulo(32) / 8, odd = thread_modulo(8) / 4 != 0;
  const float first = odd ? product[0][1] : product[0][0], last = odd ? product[1][3] : product[1][2];
  dots[0] = quad_fold(mine ? first : 0.0f, Add());
  dots[1] = quad_fold(mine ? last : 0.0f, Add());
}

// ---------------------------------------------------------------- results
// Sums of a block's rows in shared memory, those of each group. Threads that wrote fragments read rows.
template <class Form>
struct GroupSums {
  static constexpr int pitch = Form::width + 8;  // keeps eight rows in different banks
  static constexpr int bytes = Form::groups * Form::rows * pitch * 4;
  float* memory;

  __device__ void put(const Place<Form>& place, const float (&sums)[Form::columns][4],
                      const float (&factors)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = place.group * Form::rows + place.strip + place.row + 8 * r;
#pragma unroll
      for (int c = 0; c < Form::columns; ++c)
        store_lanes(memory + row * pitch + 8 * c + place.column,
                    Lanes<float, 2>{{factors[r] * sums[c][2 * r], factors[r] * sums[c][2 * r + 1]}});
    }
  }

  // Must be called when all have put theirs: stores the sums over groups, in order, at positions from `first`
  // on.
  __device__ void store(const Rows<typename Form::Value>& to, int first, int seq) const {
    constexpr int n = 4, units = Form::width / n;
    const int column = thread_modulo(units) * n;
#pragma unroll
    for (int row = thread_over(units); row < Form::rows; row += Form::threads / units) {
      Lanes<float, n> sum = load_lanes<n>(memory + row * pitch + column);
#pragma unroll
      for (int g = 1; g < Form::groups; ++g) {
        const auto more = load_lanes<n>(memory + (g * Form::rows + row) * pitch + column);
#pragma unroll
        for (int i = 0; i < n; ++i) sum[i] += more[i];
      }
      if (first + row < seq) store_lanes(to.first + (first + row) * to.stride + column, sum);
    }
  }
};

// ---------------------------------------------------------------- the host's side
// A grid's blocks are numbered by head, sample, and tile and query.
inline bool takes_shape(const AttentionShape& s) {
  constexpr std::int64_t most = 65535, least_rows = 32;
  // Without a mask no position counts. Under one, keys in front of the first query's own are for windows.
  const bool in_line =
      !s.across() || !s.causal || (s.window > 0 && s.chunk == 0 && s.ahead == 0 && s.keys == s.first + s.seq);
  return in_line && s.softcap == 0 && s.p == 0 && (s.causal || s.window == 0) &&
         (s.head_dim == 64 || s.head_dim == 128) && s.batch <= most &&
         ceil_div(shape_of_keys(s).seq, least_rows) + ceil_div(s.seq, least_rows) * s.queries <= most;
}

// Returns a call whose shape counts its keys, which the kernels read.
template <class Call>
Call with_keys(Call call) {
  call.shape.keys = shape_of_keys(call.shape).seq;
  return call;
}

// Lets the kernel use `bytes` bytes of shared memory.
template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory for attention on tensor cores");
}

}  // namespace prun::cuda::tensor_attention_parts
