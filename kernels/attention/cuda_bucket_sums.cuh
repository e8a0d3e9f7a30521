// Sums the gradients of scores by bucket of distances: a tile's are added up along its diagonals, which are
// distances, and these by bucket, each by one warp or one thread in order, so that the order of sums is
// fixed.
#pragma once

#include "attention/cuda_bias.hpp"
#include "attention/cuda_tensor.cuh"
#include "attention/cuda_tiles.cuh"

namespace prun::cuda {

// Is a range of diagonals of a tile: [begin, end].
struct Diagonals {
  int begin = 0, end = -1;
};

// Returns the diagonals that a bucket holds, in a tile of `rows` rows and `columns` keys whose first key lies
// `distance` behind its first query.
__device__ inline Diagonals diagonals_of(const BucketBounds& bounds, int bucket, int rows, int columns,
                                         int distance) {
  if (bucket >= bounds.count) return {};
  const bool behind = bucket >= bounds.each;
  const int number = behind ? bucket - bounds.each : bucket, near = bounds.first[number],
            far = bounds.first[number + 1] - 1, zero = rows - 1 - distance;
  // A query's distance to itself is 0: it is no key behind itself.
  return {max(0, behind ? zero + max(near, 1) : zero - far),
          min(rows + columns - 2, behind ? zero + far : zero - near)};
}

// Calls add(bucket, diagonals) for each bucket that holds diagonals, by all lanes of a warp, among the
// buckets that are `step` after each other from `first` on.
template <class Each>
__device__ void each_bucket(const BucketBounds& bounds, int rows, int columns, int distance, int first,
                            int step, const Each& add) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int from = first; from < bounds.count; from += 32 * step) {
    const Diagonals own = diagonals_of(bounds, from + lane * step, rows, columns, distance);
    const unsigned met = __ballot_sync(0xffffffffu, own.begin <= own.end);
    for (int owner = 0; owner < 32 && met >> owner != 0; ++owner) {
      const int bucket = from + owner * step;
      if ((met >> owner & 1) != 0) add(bucket, diagonals_of(bounds, bucket, rows, columns, distance));
    }
  }
}

// Returns the sum over some diagonals; all lanes of a warp must call it.
template <class C>
__device__ C sum_of(const C* diagonal, Diagonals which) {
  C mine = 0;
  for (int d = which.begin + static_cast<int>(threadIdx.x) % 32; d <= which.end; d += 32) mine += diagonal[d];
  return warp_fold(mine, Add());
}

// Adds the gradients of a tile's scores by bucket to those of the tiles before. Diagonal d of a tile has the
// keys that lie d - (rows - 1) further from their queries than the tile's first key from its first query.
template <class Tiles, class C>
struct TileBuckets {
  static constexpr int diagonals = 2 * Tiles::rows - 1;
  static constexpr int threads = attention_tiles::threads;
  static_assert(diagonals < threads);
  C diagonal[diagonals];
  C sum[2 * most_distance_buckets];

  __device__ void clear(const BucketBounds& bounds) {
    for (int i = threadIdx.x; i < bounds.count; i += threads) sum[i] = 0;
  }
  __device__ void add_diagonals(const C* dscores) {
    const int d = static_cast<int>(threadIdx.x);
    if (d >= diagonals) return;
    const int shift = d - (Tiles::rows - 1);
    C along = 0;
    for (int row = max(0, -shift); row < min(Tiles::rows, Tiles::rows - shift); ++row)
      along += dscores[row * Tiles::score_pitch + row + shift];
    diagonal[d] = along;
  }
  // A warp takes a bucket, whose distances are neighbouring diagonals.
  __device__ void add_buckets(const BucketBounds& bounds, std::int64_t key_to_query) {
    each_bucket(bounds, Tiles::rows, Tiles::rows, static_cast<int>(key_to_query),
                static_cast<int>(threadIdx.x) / 32, threads / 32, [&](int bucket, Diagonals which) {
                  const C added = sum_of(diagonal, which);
                  if (threadIdx.x % 32 == 0) sum[bucket] += added;
                });
  }
};

// Holds a warp's gradients of scores by bucket, in shared memory that its first lane alone uses until all are
// done.
template <class Form>
struct WarpBuckets {
  static constexpr int floats = 2 * most_distance_buckets, bytes = Form::warps * floats * 4;
  float* sum;

  __device__ WarpBuckets(float* memory, int warp) : sum(memory + warp * floats) {}

  __device__ void clear(const BucketBounds& bounds, int lane) const {
    for (int i = 0; lane == 0 && i < bounds.count; ++i) sum[i] = 0;
  }
  // Adds those of a strip and its part of a tile; `distance` is that of the first key from the strip's first
  // query. Far from it all lie in one bucket.
  __device__ void add(const tensor_attention_parts::Place<Form>& place, const BucketBounds& bounds,
                      int distance, const typename Form::Scores& dscores) const {
    const int own = 15 + place.column - place.row;  // the diagonal of a thread's first score
    each_bucket(bounds, 16, Form::inner, distance, 0, 1, [&](int bucket, Diagonals which) {
      float mine = 0;
#pragma unroll
      for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int diagonal = own + 8 * i + e % 2 - e / 2 * 8;
          if (diagonal >= which.begin && diagonal <= which.end) mine += dscores[i][e];
        }
      mine = warp_fold(mine, Add());
      if (place.lane == 0) sum[bucket] += mine;
    });
  }
};

// Must be called when all warps are done: stores their sums, added in their order.
template <class Form>
__device__ void store_buckets(float* memory, int buckets, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < buckets; i += Form::threads) {
    float all = 0;
#pragma unroll
    for (int warp = 0; warp < Form::warps; ++warp) all += WarpBuckets<Form>(memory, warp).sum[i];
    to[i] = all;
  }
}

}  // namespace prun::cuda
