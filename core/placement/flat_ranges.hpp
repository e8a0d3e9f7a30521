// Adds values and ops that work on a flat parameter in an update: on the full range, or on a rank's shard.
// Example: Muon's momentum is updated as one op on the shard, gathered into the full range, and read tensor
// by tensor.
#pragma once

#include <map>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

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
