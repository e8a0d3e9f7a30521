// Removes the zero, norm and reduce ops of single gradients, which ops of their bucket replace. Example: a
// block of six parameters loses six all-reduces in `reduce`; the strategy then writes one reduce-scatter.
#pragma once

#include <set>

#include "placement/single_sums.hpp"

namespace prun {

class SingleOps {
 public:
  explicit SingleOps(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Keeps sums that come first over other axes. Returns the further axes over which removed ops summed: the
  // shard must be summed over them.
  std::set<AxisId> remove(const Bucket& bucket) const;

  // Refuses a strategy's op on a gradient that is sharded now.
  [[noreturn]] void refuse(Id op, Id gradient) const;

 private:
  template <class Expected>
  void remove_each(const Bucket& bucket, FunctionKind function, Expected&& expected) const;
  void check_sums_or_casts(Id op, const std::set<Id>& gradients) const;
  bool remove_sum(Id sum, const std::set<Id>& gradients) const;

  const Packing& packing_;
  Program& program_;
};

// Returns the first of the gradients that the op uses, or none.
Id touched_by(const Program& program, Id op, const std::set<Id>& gradients);

}  // namespace prun
