// Finds the sums of single gradients over ranks, with the casts around them, which a bucket's sum replaces.
#pragma once

#include <vector>

#include "placement/packing.hpp"

namespace prun {

class SingleSums {
 public:
  explicit SingleSums(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Says whether the op is a sum of the kind that the bucket makes for all of its gradients.
  bool is_replaced(const Bucket& bucket, Id op) const;

  // Returns the further axes over which the bucket is to be summed for that gradient, in words.
  std::string summed_behind(const Bucket& bucket, Id gradient) const;

  // Returns the casts to and from what is summed, if a gradient travels in another type.
  std::vector<Id> casts_around(Id sum) const;

 private:
  bool stands_in_front(const Bucket& bucket, AxisId axis) const;
  bool is_of(Id sum, Id gradient) const;

  const Packing& packing_;
  const Program& program_;
};

}  // namespace prun
