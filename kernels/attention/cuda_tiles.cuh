// Holds what the attention kernels are built from: tiles of positions by channels in shared memory, which a
// block of 16 x 16 threads computes on. Thread (x, y) holds the rows y + 16 i of a product, and of these the
// columns x + 16 j of scores, or the packs of columns x + 16 c of sums over channels.
#pragma once

#include "attention/cuda_rows.cuh"

namespace prun::cuda::attention_tiles {

inline constexpr int side = 16, threads = side * side;
inline constexpr int most_width = 256;
inline constexpr int most_shared = 99 * 1024;  // a block's limit on every device

template <class C>
inline constexpr int lanes = 16 / static_cast<int>(sizeof(C));

// Returns the bytes of `tiles` of rows x width and one of rows x rows; a pack more in each row keeps banks
// apart.
template <class C>
constexpr int shared_bytes(int rows, int width, int tiles) {
  return (tiles * rows * (width + lanes<C>)+rows * (rows + lanes<C>)) * static_cast<int>(sizeof(C));
}

template <class C>
constexpr int rows_that_fit(int width, int tiles) {
  int rows = 64;
  while (rows > side && shared_bytes<C>(rows, width, tiles) > most_shared) rows /= 2;
  return rows;
}

template <class C, int R, int W>
struct Tiles {
  static constexpr int rows = R, width = W, pitch = W + lanes<C>, score_pitch = R + lanes<C>;
  static constexpr int per_thread = R / side;          // counts rows, and columns of scores
  static constexpr int packs = W / (side * lanes<C>);  // counts packs of columns of sums

  using Scores = C[per_thread][per_thread];
  using Sums = Lanes<C, lanes<C>>[per_thread][packs];

  static __device__ int x() { return static_cast<int>(threadIdx.x) % side; }
  static __device__ int row(int i) { return static_cast<int>(threadIdx.x) / side + side * i; }
  static __device__ int score_column(int j) { return x() + side * j; }
  static __device__ int sum_column(int c) { return (x() + side * c) * lanes<C>; }

  // Returns the tile of that number in shared memory; the scores lie behind the last tile.
  static __device__ C* tile(int number) {
    extern __shared__ __align__(16) unsigned char memory[];
    return reinterpret_cast<C*>(memory) + number * rows * pitch;
  }

  static __device__ void clear(Sums& sums) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
#pragma unroll
      for (int c = 0; c < packs; ++c) sums[i][c] = {};
  }

  // Computes scores = a b^T.
  static __device__ void dot_rows(const C* a, const C* b, Scores& scores) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
#pragma unroll
      for (int j = 0; j < per_thread; ++j) scores[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < width; d += lanes<C>) {
      Lanes<C, lanes<C>> left[per_thread], right[per_thread];
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        left[i] = load_lanes<lanes<C>>(a + row(i) * pitch + d);
        right[i] = load_lanes<lanes<C>>(b + score_column(i) * pitch + d);
      }
#pragma unroll
      for (int i = 0; i < per_thread; ++i)
#pragma unroll
        for (int j = 0; j < per_thread; ++j)
#pragma unroll
          for (int l = 0; l < lanes<C>; ++l) scores[i][j] += left[i][l] * right[j][l];
    }
  }

  static __device__ void store_scores(const Scores& scores, C* to) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
#pragma unroll
      for (int j = 0; j < per_thread; ++j) to[row(i) * score_pitch + score_column(j)] = scores[i][j];
  }

  // Computes sums += scores b.
  static __device__ void add_product(const C* scores, const C* b, Sums& sums) {
#pragma unroll 2
    for (int k = 0; k < rows; k += lanes<C>) {
      Lanes<C, lanes<C>> left[per_thread];
#pragma unroll
      for (int i = 0; i < per_thread; ++i) left[i] = load_lanes<lanes<C>>(scores + row(i) * score_pitch + k);
#pragma unroll
      for (int l = 0; l < lanes<C>; ++l)
#pragma unroll
        for (int c = 0; c < packs; ++c) {
          const auto right = load_lanes<lanes<C>>(b + (k + l) * pitch + sum_column(c));
#pragma unroll
          for (int i = 0; i < per_thread; ++i)
#pragma unroll
            for (int e = 0; e < lanes<C>; ++e) sums[i][c][e] += left[i][l] * right[e];
        }
    }
  }
};

// Loads rows [first, first + rows of the tile); elements beyond seq or head_dim become zero. `packed` says to
// use accesses of 16 bytes.
template <class Tiles, class T>
__device__ void load_tile(const Rows<const T>& from, std::int64_t first, const AttentionShape& shape,
                          bool packed, Compute<T>* tile) {
  using C = Compute<T>;
  const auto copy = [&]<int N>(std::integral_constant<int, N>) {
    constexpr int units = Tiles::width / N;
    for (int u = threadIdx.x; u < Tiles::rows * units; u += threads) {
      const int r = u / units, d = u % units * N;
      Lanes<C, N> values = {};
      if (first + r < shape.seq && d < shape.head_dim)
        values = load_lanes<N>(from.first + (first + r) * from.stride + d);
      store_lanes(tile + r * Tiles::pitch + d, values);
    }
  };
  if (packed)
    copy(std::integral_constant<int, chunk<T>>());
  else
    copy(std::integral_constant<int, 1>());
}

// Stores factor(i) x row i of the sums.
template <class Tiles, class T, class Factor>
__device__ void store_sums(const typename Tiles::Sums& sums, const Rows<T>& to, std::int64_t first,
                           const AttentionShape& shape, bool packed, Factor factor) {
  constexpr int n = lanes<Compute<T>>;
#pragma unroll
  for (int i = 0; i < Tiles::per_thread; ++i) {
    const std::int64_t position = first + Tiles::row(i);
    if (position >= shape.seq) continue;
    T* row = to.first + position * to.stride;
#pragma unroll
    for (int c = 0; c < Tiles::packs; ++c) {
      const int column = Tiles::sum_column(c);
      auto values = sums[i][c];
#pragma unroll
      for (int e = 0; e < n; ++e) values[e] *= factor(i);
      if (packed) {
        if (column < shape.head_dim) store_lanes(row + column, values);
      } else {
#pragma unroll
        for (int e = 0; e < n; ++e)
          if (column + e < shape.head_dim) store(row + column + e, values[e]);
      }
    }
  }
}

// Combines x over the 16 threads that hold a row of scores.
template <class C, class Combine>
__device__ C row_fold(C x, Combine combine) {
#pragma unroll
  for (int distance = side / 2; distance > 0; distance /= 2)
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

// Computes delta = rows of dy . y: the softmax's own gradient subtracts it from each weight's. A warp takes a
// row.
template <class T>
__global__ void delta_kernel(const __grid_constant__ AttentionBackward<T> call, Compute<T>* delta) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const std::int64_t index = blockIdx.x * std::int64_t{threads / 32} + threadIdx.x / 32;
  if (index >= shape.query_rows()) return;
  const Unit unit(shape, index / shape.seq);
  const std::int64_t position = index % shape.seq;
  const Rows<const T> dy = rows_of(call.dy, unit, shape.head_dim), y = rows_of(call.y, unit, shape.head_dim);
  const T *dy_row = dy.first + position * dy.stride, *y_row = y.first + position * y.stride;
  C sum = 0;
  for (int d = threadIdx.x % 32; d < shape.head_dim; d += 32) sum += load(dy_row + d) * load(y_row + d);
  sum = warp_fold(sum, Add());
  if (threadIdx.x % 32 == 0) delta[index] = sum;
}

// ---------------------------------------------------------------- the host's side
// launch(width) as a type: that of the tiles which hold a shape's heads.
template <class Launch>
void with_width(const AttentionShape& shape, Launch launch) {
  if (shape.head_dim > most_width)
    throw_error(ErrorCode::unsupported, "attention on the GPU takes heads of up to ", most_width,
                " channels, not ", shape.head_dim, "; use the CPU device or smaller heads");
  if (shape.head_dim <= 64)
    launch(std::integral_constant<int, 64>());
  else if (shape.head_dim <= 128)
    launch(std::integral_constant<int, 128>());
  else
    launch(std::integral_constant<int, most_width>());
}

template <class Tiles>
unsigned tiles_of(std::int64_t seq, std::int64_t units) {
  return grid_of(ceil_div(seq, Tiles::rows) * units);
}

// Lets the kernel use the shared memory that it needs, and returns how much that is.
template <class Tiles, class Kernel>
int take_shared(Kernel kernel, int tiles, const char* name) {
  const int bytes = shared_bytes<typename std::remove_all_extents_t<typename Tiles::Scores>>(
      Tiles::rows, Tiles::width, tiles);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  return bytes;
}

}  // namespace prun::cuda::attention_tiles
