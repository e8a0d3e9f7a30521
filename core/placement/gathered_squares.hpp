// Has each rank make codes of its part of a bucket's parameters once a step, where all that reads them are
// products in fp8 (prun/fp8_squares.hpp): these come together in place of the parameters.
//
// Squares are cut on the whole matrix, and parts of ranks anywhere. So ranks take the largest magnitude of
// each square from all of them, an fp32 for 16384 elements, and each makes codes of its part, as one that has
// the whole would. A member has room for its scales behind its codes: what is gathered lies as products take
// it. Where borders of parts were those of squares instead, most ranks of a large mesh would have none of a
// weight.
#pragma once

#include <map>
#include <span>

#include "placement/packing.hpp"
#include "prun/fp8_squares.hpp"

namespace prun {

class GatheredSquares {
 public:
  explicit GatheredSquares(Program& program) : program_(program) {}

  // Adds the codes of a bucket's parameters, and what makes a rank's own. The bucket is the program's next.
  void add(PackedBucket& bucket);

 private:
  // Names the first exchange of a segment's `renew`, and the first op behind all of them: they stand one
  // after another, with ops that measure before them and ops that encode behind.
  struct Exchanges {
    Id first = none, behind = none;
  };

  Id add_peaks(const Bucket& bucket, std::span<const Fp8Squares> members);
  void renew(const Bucket& bucket, std::span<const Fp8Squares> members, Id codes, Id peaks);
  Id add_codes(Id like, const char* name, Role role, ValueLifetime lifetime);

  Program& program_;
  std::map<Id, Exchanges> exchanges_;  // by segment
};

}  // namespace prun
