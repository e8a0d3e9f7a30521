// Data shared by the files of the packer (pack.cpp): which parameters are packed over which axes, and what is
// sharded besides optimizer state. Example: `zero` stage 2 over dp = 4 is {axes = {dp}, kept = {gradients =
// true}}.
#pragma once

#include <algorithm>

#include "program/passes.hpp"
#include "program/update_form.hpp"

namespace prun {

// This is sharded besides optimizer state.
struct KeptParts {
  bool gradients = false, parameters = false;
};

// A bucket under construction.
struct PackedBucket : Bucket {
  KeptParts kept;
  // A rank's shard of a microbatch's reduced gradients, if it reuses the memory of the local gradients; none
  // if it is stored separately.
  Id own_sums = none;
  // With a secondary copy: the axes that share it, and the other axes.
  std::optional<AxisId> within, across;
  // Gathered instead of parameters if products read codes.
  Id codes = none, own_codes = none;
};

struct Packing {
  Program& program;
  const Optimizers& optimizers;
  std::vector<AxisId> axes;  // with more than one rank each
  KeptParts kept;
  std::int64_t microbatches = 0;  // 0 if gradients are summed

  // 1-bit Adam: ranks sum what updates write, not gradients. On a single rank, each microbatch plays a rank.
  bool sums_in_update() const { return microbatches > 0; }

  // Returns true for a single rank. It rounds what several ranks would quantize, microbatch by microbatch;
  // nothing else is sharded.
  bool is_alone() const { return program.mesh().extent(folded(axes)) == 1; }

  // Returns true if unquantized gradients are reduced in their own type.
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

// Returns views of the padding between gradients and after the last. It must be zero, since it is reduced
// too.
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
