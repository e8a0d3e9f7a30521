// Removes the ops of single gradients that a bucket's ops replace.
#pragma once

#include <set>

#include "placement/single_sums.hpp"

namespace prun {

class SingleOps {
 public:
  explicit SingleOps(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Removes the ops, but leaves sums over other axes. Returns those axes behind the bucket's over which the
  // removed ops had summed.
  std::set<AxisId> remove(const Bucket& bucket) const;

  // Refuses a strategy's op on a gradient: it would find parts where it was written for the whole.
  [[noreturn]] void refuse(Id op, Id gradient) const;

 private:
  template <class Expected>
  void remove_each(const Bucket& bucket, FunctionKind function, Expected&& expected) const;
  void check_sums_or_casts(Id op, const std::set<Id>& gradients) const;
  bool remove_sum(Id sum, const std::set<Id>& gradients) const;

  const Packing& packing_;
  Program& program_;
};

// Returns the one of the gradients that is an operand of the op, or none.
Id touched_by(const Program& program, Id op, const std::set<Id>& gradients);

}  // namespace prun
