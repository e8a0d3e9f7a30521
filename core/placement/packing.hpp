// Describes a packing to the parts of the packer (pack.cpp): of gradients that ranks sum, or of what updates
// make of gradients.
#pragma once

#include <algorithm>

#include "program/passes.hpp"
#include "program/update_form.hpp"

namespace prun {

// Says what is kept in parts beside the optimizer state.
struct KeptParts {
  bool gradients = false, parameters = false;
};

// Holds a bucket while it is packed.
struct PackedBucket : Bucket {
  KeptParts kept;
  // This is the own part of a microbatch's sum over the ranks, if it lies in the microbatch's own gradients,
  // which are spent; none if it lies elsewhere.
  Id own_sums = none;
  // Where ranks of some of the bucket's axes have a copy of all parameters, these are they, and the others.
  std::optional<AxisId> within, across;
  // These are what is gathered in place of the parameters, if products read their codes.
  Id codes = none, own_codes = none;
};

struct Packing {
  Program& program;
  const Optimizers& optimizers;
  std::vector<AxisId> axes;  // axes of several ranks each
  KeptParts kept;
  std::int64_t microbatches = 0;  // 0 if gradients are summed

  // Where no axis sums what updates make, each microbatch is taken for a rank's.
  bool sums_in_update() const { return microbatches > 0; }

  // Says whether there is one rank: it rounds what several would send in codes, its microbatches one by one
  // as if each were another rank's, and has everything else as it would without parts.
  bool is_alone() const { return program.mesh().extent(folded(axes)) == 1; }

  // Says whether the ranks' sum of gradients that are not coded comes in the type of these.
  bool sums_as_they_are() const {
    return is_alone() || program.precision().reduce == program.precision().gradient;
  }

  bool sums_codes(const Bucket& bucket) const {
    return bucket.coded && program.precision().reduce_bits > 0 && !sums_in_update();
  }

  std::int64_t parts(const Bucket& bucket) const { return program.mesh().extent(bucket.axis); }

  const NamedOptimizer& optimizer_of(const Value& parameter) const {
    return optimizers.at(static_cast<std::size_t>(parameter.optimizer));
  }
};

// Returns the views of what lies between a bucket's gradients and behind the last one: it is zero, since
// ranks sum it with them.
inline std::vector<Id> paddings(const Program& program, const Bucket& bucket) {
  std::vector<Id> list;
  for (const Id id : program.segment(bucket.segment).values) {
    const Value& value = program.value(id);
    if (value.role == Role::view && value.view && value.view->whole == bucket.all_gradients &&
        !value.view->is_part())
      list.push_back(id);
  }
  return list;
}

inline bool is_over(const Bucket& bucket, AxisId axis) {
  const std::vector<AxisId> axes = axes_of(bucket.axis);
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace prun
