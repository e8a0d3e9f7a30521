// Writes the gathers of a bucket's parameters, of which each rank keeps a part: as they are, in codes
// (prun/block_codes.hpp) or, where all that reads them are products in fp8, in the codes that these multiply
// (prun/fp8_squares.hpp); from the parts of all ranks or from a copy that some of them have among them.
//
// Squares are cut on the whole matrix, and parts of ranks anywhere. So once a step, ahead of the first
// gather, ranks take the largest magnitude of each square from all of them, an fp32 for 16384 elements, and
// each makes codes of its part, as one that has the whole would. A member has room for its scales behind its
// codes: what is gathered lies as products take it. Where borders of parts were those of squares instead,
// most ranks of a large mesh would have none of a weight.
//
// A copy lies in parts over some of the bucket's axes and has all of the others': `renew` brings it once a
// step, ahead of the first gather, and each use gathers over the first alone. It is what travels, so in codes
// where that is codes. ZeRO++ has each forward gather over all ranks and keep the copy of that for backward;
// here a step brings a rank's share between hosts once, whatever the microbatches.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "placement/packing.hpp"
#include "prun/fp8_squares.hpp"

namespace prun {

enum class Gathered : std::uint8_t { as_they_are, in_codes, in_squares };

class ParameterGathers {
 public:
  // `copy_axes` are the axes whose ranks have a copy among them; if they are empty, there is none.
  ParameterGathers(Program& program, std::vector<AxisId> copy_axes)
      : program_(program), copy_axes_(std::move(copy_axes)) {}

  // Adds the values and ops that gather a bucket's parameters. The bucket is the program's next.
  void add(PackedBucket& bucket, Gathered how);

 private:
  // Names the first op of a function that exchanges, and the first behind all that do. A segment's exchanges
  // stand one after another, with ops that encode before them and ops that decode behind.
  struct Exchanges {
    Id first = none, behind = none;
  };

  // Returns those of the bucket's axes whose ranks have a copy among them.
  std::vector<AxisId> axes_with_copy(const Bucket& bucket) const;
  void add_copy(PackedBucket& bucket);
  // Puts codes of a copy in its place.
  void travel_as(PackedBucket& bucket, Id codes);
  // Has the rank's own codes lie among those of all ranks, or in its part of the copy.
  void lie_in_place(const PackedBucket& bucket, Id own, Id all);
  void gather(const PackedBucket& bucket, Id own, Id all, bool made = false);
  void exchange(const Bucket& bucket, FunctionKind function, Id from, Id to,
                std::span<const AttrValue> attrs);
  void add_squares(PackedBucket& bucket);
  Id add_peaks(const Bucket& bucket, std::span<const Fp8Squares> members);
  void renew_squares(const Bucket& bucket, std::span<const Fp8Squares> members, Id codes, Id peaks);
  Id add_codes_of_squares(const Bucket& bucket, Id like, const char* name, Role role);
  void encode(const Bucket& bucket, FunctionKind function, Id from, Id to);
  void decode(const Bucket& bucket, Id codes);
  Id add_codes(const Bucket& bucket, Id like, const char* name);
  std::int64_t bits() const { return program_.precision().gather_bits; }

  Program& program_;
  const std::vector<AxisId> copy_axes_;
  std::map<std::pair<Id, FunctionKind>, Exchanges> exchanges_;  // exchanges by segment and function
};

}  // namespace prun
