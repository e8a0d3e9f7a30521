// Rewrites updates of full tensors (Muon, Adafactor) for sharded state. Elementwise ops become one op on a
// rank's shard. Operands that another op needs in full are gathered; each tensor is taken from the gathered
// buffer, and each rank keeps its shard of the result. An op with OpDef::dealt is run by one rank: layers are
// assigned to ranks by cost, others write zeros, and a reduce-scatter distributes the result. State of
// another shape than its parameter is replicated and updated on every rank. Example: Muon's `momentum` runs
// on the shard, its result is gathered, `orthogonalize` runs for each matrix on one rank, and `sgd` runs on
// the shard again. Full tensors on unequal shards were the alternative: a rank would have nothing if there
// are more ranks than tensors in a layer. This design costs one more gather and reduction a step.
#pragma once

#include <string>

#include "placement/dealt_loads.hpp"
#include "program/update_form.hpp"

namespace prun {

// Describes the elementwise ops of an update: parameters with equal texts may share a bucket.
std::string flat_form(const Program& program, Id parameter, const Update& update);

// Adds the bucket's update. The caller erases the members' ops.
void pack_whole_updates(Program& program, const Bucket& bucket, std::span<const Update> updates,
                        DealtLoads& loads);

}  // namespace prun
