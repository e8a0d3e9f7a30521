// Adds the values of a bucket: its members one after another, the part of it that is a rank's own, and what
// an update keeps of that part.
#pragma once

#include "placement/packing.hpp"

namespace prun {

class BucketValues {
 public:
  // The bucket is the program's next. `summands` counts what updates make: a rank's part each or a row each.
  BucketValues(const Packing& packing, PackedBucket& bucket, std::int64_t summands)
      : packing_(packing),
        program_(packing.program),
        bucket_(bucket),
        number_(static_cast<std::int32_t>(packing.program.buckets().size())),
        summands_(summands) {}

  // Lays members one after another, each from a whole grain on; where they come together in squares of fp8,
  // with room for an element's code in its place, and for scales behind each member's codes.
  void lay_side_by_side(const std::vector<Id>& members, bool in_squares);

  void add_parameters();
  // Adds what an update needs beside the parameters.
  void add_state();
  // Forgets the members' own state, except state with a shape of its own.
  void forget_single_state();

 private:
  Id add_flat(const char* name, Role role, DType type, bool own);
  // Adds the rank's own part of a value: kept in memory of its own, or a view of the whole.
  Id add_own(const char* name, Id whole, bool kept);
  void lay_in_rows();
  Id add_scales(const Value& parameter, Id of_one);
  void add_padding();

  const Packing& packing_;
  Program& program_;
  PackedBucket& bucket_;
  const std::int32_t number_;
  const std::int64_t summands_;
};

// Says that a rank has its part of the value.
void lay_in_parts(const Program& program, const Bucket& bucket, Value& value);

}  // namespace prun
