// Describes a packing to the parts of the packer (pack.cpp): of gradients that ranks sum, or of what updates
// make of gradients.
#pragma once

#include <algorithm>

#include "program/passes.hpp"
#include "program/update_form.hpp"

namespace prun {

struct Packing {
  Program& program;
  const Optimizers& optimizers;
  std::vector<AxisId> axes;  // axes of several ranks each
  KeptInParts kept;
  std::int64_t microbatches = 0;  // 0 if gradients are summed

  // Where no axis sums what updates make, each microbatch is taken for a rank's.
  bool sums_in_update() const { return microbatches > 0; }

  // Says whether there is one rank: it rounds what several would send in codes, its microbatches one by one
  // as if each were another rank's, and has everything else as it would without parts.
  bool is_alone() const { return program.mesh().extent(folded(axes)) == 1; }

  // Returns the type in which gradients that are not coded travel.
  DType travels() const { return is_alone() ? program.precision().gradient : program.precision().reduce; }

  bool sums_codes(const Bucket& bucket) const {
    return bucket.coded && program.precision().reduce_bits > 0 && !sums_in_update();
  }

  std::int64_t parts(const Bucket& bucket) const { return program.mesh().extent(bucket.axis); }

  const NamedOptimizer& optimizer_of(const Value& parameter) const {
    return optimizers.at(static_cast<std::size_t>(parameter.optimizer));
  }
};

inline bool is_over(const Bucket& bucket, AxisId axis) {
  const std::vector<AxisId> axes = axes_of(bucket.axis);
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace prun
