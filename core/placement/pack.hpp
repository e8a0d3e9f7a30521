// Packs parameters into flat parameters for ZeRO. Parameters of a segment that have the same update share a
// bucket, of which each rank owns an equal shard: the gradient's shard is reduced to it, it updates its
// shard, and shards are gathered. The ranks are those of the requested axes that sum the gradients. Example:
// `stage = 1` on `dp = 4` and a block of qkv [6H, H], projection and MLP: one buffer holds these matrices one
// after another, padded to a multiple of 4; rank 1 has moments for its second quarter, wherever matrices
// begin and end.
#pragma once

#include <algorithm>

#include "program/passes.hpp"
#include "program/update.hpp"

namespace prun {

// ------------------------------------------------------------------- pack

// Runs after place_on_mesh. An elementwise optimizer writes its update anew, for the shard. The update of an
// optimizer of full tensors is rewritten (placement/pack_whole.hpp).
void pack_state(Program& program, const Optimizers& optimizers, const ShardRequest& parts);

// Packs parameters into flat buckets when ranks sum the optimizer's result instead of the gradient (1-bit
// Adam, placement/bucket_groups.hpp). Each rank keeps the full bucket. On a single rank, each microbatch
// plays the part of one rank. Throws if no parameter qualifies.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches);

// ------------------------------------------------------------------- packing
// Data shared by the files of the packer (pack.cpp): which parameters are packed over which axes, and what is
// sharded besides optimizer state. Example: `zero` stage 2 over dp = 4 is {axes = {dp}, kept = {gradients =
// true}}.

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
  // Gathered instead of parameters if a strategy declared codes of these.
  Id codes = none, own_codes = none;
  std::vector<Id> member_codes;
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
