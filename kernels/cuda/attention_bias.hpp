// The bias of attention_biased as kernels read it, and where its gradient's parts go.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Of one direction.
inline constexpr int most_distance_buckets = 128;

// Where buckets begin: that of number i holds the distances from first[i] on, up to first[i + 1].
struct BucketBounds {
  std::int32_t each = 0;   // of one direction
  std::int32_t count = 0;  // of a table
  std::int32_t first[most_distance_buckets + 1] = {};
};

// Spread out by distance: [heads, 2 seq - 1 + 2 margin], of which key - query + seq - 1 + margin is a score's
// own. Tiles look beyond the last position, and find zeros there.
template <class C>
struct Biases {
  static constexpr int margin = 128;
  const C* of = nullptr;
  C scale = 1;  // of the products
  std::int64_t seq = 0;

  static constexpr std::int64_t of_each_head(std::int64_t seq) { return 2 * seq - 1 + 2 * margin; }
  // By key - query.
  constexpr const C* of_head(std::int64_t head) const {
    return of + head * of_each_head(seq) + seq - 1 + margin;
  }
};

// What the table's gradient is made of: by block of queries, the sums of its scores' gradients by bucket.
struct TableParts {
  BucketBounds bounds;
  float* parts = nullptr;  // [tiles, samples, heads, queries, buckets]
};

}  // namespace prun::cuda
