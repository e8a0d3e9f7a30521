// Declares the bias of attention_biased as kernels read it, and where its gradient's parts go.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Limits the buckets of one direction.
inline constexpr int most_distance_buckets = 128;

// Says where buckets begin: bucket i holds the distances from first[i] on, up to first[i + 1].
struct BucketBounds {
  std::int32_t each = 0;   // counts those of one direction
  std::int32_t count = 0;  // counts those of a table
  std::int32_t first[most_distance_buckets + 1] = {};

  // Returns the number of the bucket that holds a distance, among those of its direction: the last that
  // begins there or before.
  constexpr int of_distance(std::int64_t away) const {
    int low = 0, high = each;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first[middle] <= away ? low : high) = middle;
    }
    return low;
  }
};

// Has biases by distance: [heads, 2 seq - 1 + 2 margin], of which a score's own is at key - query + seq - 1 +
// margin. Tiles look beyond the last position, and find zeros there.
template <class C>
struct Biases {
  static constexpr int margin = 128;
  const C* of = nullptr;
  C scale = 1;  // multiplies the products
  std::int64_t seq = 0;

  static constexpr std::int64_t of_each_head(std::int64_t seq) { return 2 * seq - 1 + 2 * margin; }
  // Returns a head's biases, to be indexed by key - query.
  constexpr const C* of_head(std::int64_t head) const {
    return of + head * of_each_head(seq) + seq - 1 + margin;
  }
};

// Holds the parts of the table's gradient: by block of queries, the sums of its scores' gradients by bucket.
struct TableParts {
  BucketBounds bounds;
  float* parts = nullptr;  // [tiles, samples, heads, queries, buckets]
};

}  // namespace prun::cuda
