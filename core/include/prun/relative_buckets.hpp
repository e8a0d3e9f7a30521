// SPDX-License-Identifier: Apache-2.0
// Defines T5's relative position buckets, used by attention_biased: small distances have a bucket each,
// larger ones share buckets of logarithmic size. Without a causal mask the second half is for keys after the
// query. Logarithms are in float, as in PyTorch, and always computed on the host: devices differ in the last
// digit, which would move a distance at a bound to another bucket.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace prun {

struct RelativeBuckets {
  std::int64_t count;     // number of buckets of a table
  std::int64_t distance;  // distance from which on all keys are in the last bucket of their direction
  bool causal;

  std::int64_t each() const { return causal ? count : count / 2; }
  // Returns the bucket of keys so far away, among those of one direction.
  std::int64_t of_distance(std::int64_t away) const {
    const std::int64_t exact = each() / 2;
    if (away < exact) return away;
    const float share =
        std::log(static_cast<float>(away) / static_cast<float>(exact)) /
        static_cast<float>(std::log(static_cast<double>(distance) / static_cast<double>(exact)));
    const auto further = static_cast<std::int64_t>(share * static_cast<float>(each() - exact));
    return std::min(exact + further, each() - 1);
  }
  std::int64_t of(std::int64_t query, std::int64_t key) const {
    return (!causal && key > query ? each() : 0) + of_distance(std::abs(query - key));
  }
};

}  // namespace prun
