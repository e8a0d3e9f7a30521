// Adds the sums of a segment's buckets over ranks, and the gathers of what updates make of them.
#pragma once

#include <span>
#include <vector>

#include "placement/packing.hpp"

namespace prun {

struct SummedBucket {
  PackedBucket bucket;
  std::vector<AxisId> further_axes;  // axes over which the sum of its own axis is summed again
};

class GradientExchanges {
 public:
  explicit GradientExchanges(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Adds the sums of buckets that travel at the same time: they stand one after another, with nothing
  // computed between them. Each rank sums its part of the gradients, in the type that travels; where parts
  // are kept, microbatches add up in the part.
  void add(std::span<const SummedBucket> summed) const;

 private:
  Id blocks_of(const Bucket& bucket) const;
  Id scatter(const PackedBucket& bucket, Id blocks) const;
  Id sum_codes(const PackedBucket& bucket, Id summands) const;
  void sum_behind(const SummedBucket& summed, Id part) const;
  void keep(const Bucket& bucket, Id sum) const;
  void gather_updated(const PackedBucket& bucket) const;
  Id part_of_sum(const PackedBucket& bucket) const;
  Id cast(const Bucket& bucket, Id id, DType from, DType to) const;

  const Packing& packing_;
  Program& program_;
};

}  // namespace prun
