// Rewrites updates of full tensors (Muon, Adafactor) for sharded state. Elementwise ops become one op on a
// rank's shard. Operands that another op needs in full are gathered; each tensor is taken from the gathered
// buffer, and each rank keeps its shard of the result. An op with OpDef::dealt is run by one rank: layers are
// assigned to ranks by cost, others write zeros, and a reduce-scatter distributes the result. State of
// another shape than its parameter is replicated and updated on every rank. Example: Muon's `momentum` runs
// on the shard, its result is gathered, `orthogonalize` runs for each matrix on one rank, and `sgd` runs on
// the shard again. Full tensors on unequal shards were the alternative: a rank would have nothing if there
// are more ranks than tensors in a layer. This design costs one more gather and reduction a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/mesh.hpp"
#include "program/step_program.hpp"
#include "program/update.hpp"

namespace prun {

// ------------------------------------------------------------------- dealt loads
// Assigns ops that one rank runs for all (OpDef::dealt) to ranks, so that the most loaded rank has the least
// work. Example: four layers with one Muon op each, on four ranks: rank 0 runs it for layer 0, rank 1 for
// layer 1. A further op starts at the rank that keeps the largest load smallest.

// FLOPs assigned to each rank of an axis so far.
using DealtLoads = std::map<AxisId, std::vector<double>>;

// Assigns one op of `layers` layers round-robin to consecutive ranks. Returns the rank of the first layer and
// adds the cost to `loads`.
std::size_t deal(std::vector<double>& loads, std::int64_t layers, double cost);

// ------------------------------------------------------------------- pack whole

// Describes the elementwise ops of an update: parameters with equal texts may share a bucket.
std::string flat_form(const Program& program, Id parameter, const Update& update);

// Adds the bucket's update. The caller erases the members' ops.
void pack_whole_updates(Program& program, const Bucket& bucket, std::span<const Update> updates,
                        DealtLoads& loads);

// ------------------------------------------------------------------- flat ranges
// Adds values and ops that work on a flat parameter in an update: on the full range, or on a rank's shard.
// Example: Muon's momentum is updated as one op on the shard, gathered into the full range, and read tensor
// by tensor.

class FlatRanges {
 public:
  FlatRanges(Program& program, const Bucket& bucket)
      : program_(program), bucket_(bucket), parts_(program.mesh().extent(bucket.axis)) {}

  std::int64_t parts() const { return parts_; }
  // exchange() communicates among the ranks that hold the shards.
  Id add(const char* kind, std::vector<Id> operands, std::span<const AttrValue> attrs = {});
  Id exchange(const char* kind, Id from, Id to);
  // Adds a value of the full range, or of the rank's shard (`own`).
  Id add_range(const Value& like, const char* suffix, bool own);
  // Returns the all-gathered value; each is gathered once.
  Id gathered(Id own);
  // Returns a sharded value, from which an op learns its rank; none until something is gathered.
  Id any_part() const { return part_; }

 private:
  Program& program_;
  const Bucket& bucket_;
  const std::int64_t parts_;
  std::map<Id, Id> gathered_;  // by the rank's shard
  Id part_ = none;
};

}  // namespace prun
