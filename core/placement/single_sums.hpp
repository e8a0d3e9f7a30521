// Finds the sums of single gradients, with casts around them, that a bucket's collective replaces. Example:
// axes [hosts, dp, tp], bucket over dp. The sum over dp becomes a reduce-scatter; that over hosts follows for
// the shard; that over tp stays in front, for each full gradient.
#pragma once

#include <vector>

#include "placement/packing.hpp"

namespace prun {

class SingleSums {
 public:
  explicit SingleSums(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Returns true for a sum that the bucket takes over for all its gradients.
  bool is_replaced(const Bucket& bucket, Id op) const;

  // Names the further axes over which the bucket is summed for that gradient.
  std::string summed_behind(const Bucket& bucket, Id gradient) const;

  // Returns the casts around a sum that communicates in another type.
  std::vector<Id> casts_around(Id sum) const;

 private:
  bool stands_in_front(const Bucket& bucket, AxisId axis) const;
  bool is_of(Id sum, Id gradient) const;

  const Packing& packing_;
  const Program& program_;
};

}  // namespace prun
