// Adds flat ops and values of a bucket's update: over the whole bucket, or over one rank's part of it.
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
  // Appends an op to the bucket's update; an op that exchanges does so over the ranks that have its parts.
  Id add(const char* kind, std::vector<Id> operands, std::span<const AttrValue> attrs = {});
  Id exchange(const char* kind, Id from, Id to);
  // Adds a value over the bucket, or over the rank's part of it.
  Id add_range(const Value& like, const char* suffix, bool own);
  // Returns the whole of a value that the ranks have parts of, gathered once for each.
  Id gathered(Id own);
  // Returns a value that is sharded, by which an op knows which rank it is on; it is none until something is
  // gathered.
  Id any_part() const { return part_; }

 private:
  Program& program_;
  const Bucket& bucket_;
  const std::int64_t parts_;
  std::map<Id, Id> gathered_;  // gathered values by the rank's part
  Id part_ = none;
};

}  // namespace prun
