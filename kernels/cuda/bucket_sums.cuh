// The gradients of scores by bucket of distances: a tile's are added up along its diagonals, which are
// distances, and these by bucket, each by one warp or one thread in order, so that the sums' order is fixed.
#pragma once

#include "cuda/attention_bias.hpp"
#include "cuda/device.cuh"

namespace prun::cuda {

// Diagonals of a tile: [begin, end].
struct Diagonals {
  int begin = 0, end = -1;
};

// Those that a bucket holds, of a tile of `rows` rows and `columns` keys whose first key lies `distance`
// behind its first query.
__device__ inline Diagonals diagonals_of(const BucketBounds& bounds, int bucket, int rows, int columns,
                                         int distance) {
  if (bucket >= bounds.count) return {};
  const bool behind = bucket >= bounds.each;
  const int number = behind ? bucket - bounds.each : bucket, near = bounds.first[number],
            far = bounds.first[number + 1] - 1, zero = rows - 1 - distance;
  // A query is no further than itself from itself: that is no key behind it.
  return {max(0, behind ? zero + max(near, 1) : zero - far),
          min(rows + columns - 2, behind ? zero + far : zero - near)};
}

// Calls add(bucket, diagonals) for each bucket that holds some; by all lanes of a warp, for those buckets
// that are `step` after each other from `first` on.
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

// Of some diagonals, by all lanes of a warp.
template <class C>
__device__ C sum_of(const C* diagonal, Diagonals which) {
  C mine = 0;
  for (int d = which.begin + static_cast<int>(threadIdx.x) % 32; d <= which.end; d += 32) mine += diagonal[d];
  return warp_fold(mine, Add());
}

}  // namespace prun::cuda
