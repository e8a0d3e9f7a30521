// Writes the gathers of a bucket's parameters, of which each rank keeps a part: as they are or in codes
// (prun/block_codes.hpp), from the parts of all ranks or from a copy that some of them have among them.
//
// A copy lies in parts over some of the bucket's axes and has all of the others': `renew` brings it once a
// step, ahead of the first gather, and each use gathers over the first alone. It is what travels, so in codes
// where that is codes. ZeRO++ has each forward gather over all ranks and keep the copy of that for backward;
// here a step brings a rank's share between hosts once, whatever the microbatches.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

class ParameterGathers {
 public:
  // `copy_axes` are the axes whose ranks have a copy among them; if they are empty, there is none.
  ParameterGathers(Program& program, std::vector<AxisId> copy_axes)
      : program_(program), copy_axes_(std::move(copy_axes)) {}

  // Adds the values and ops that gather a bucket's parameters. The bucket is the program's last.
  void add(Bucket& bucket, bool in_codes);

 private:
  // Names the first op of a function that exchanges, and the first behind all that do. A segment's exchanges
  // stand one after another, with ops that encode before them and ops that decode behind.
  struct Exchanges {
    Id first = none, behind = none;
  };

  // Returns those of the bucket's axes whose ranks have a copy among them.
  std::vector<AxisId> axes_with_copy(const Bucket& bucket) const;
  void add_copy(Bucket& bucket);
  void gather(const Bucket& bucket, Id own, Id all);
  void exchange(const Bucket& bucket, FunctionKind function, Id from, Id to,
                std::span<const AttrValue> attrs);
  void encode(const Bucket& bucket, FunctionKind function, Id from, Id to);
  void decode(const Bucket& bucket);
  Id add_codes(const Bucket& bucket, Id like, const char* name);
  std::int64_t bits() const { return program_.precision().gather_bits; }

  Program& program_;
  const std::vector<AxisId> copy_axes_;
  std::map<std::pair<Id, FunctionKind>, Exchanges> exchanges_;  // exchanges by segment and function
};

}  // namespace prun
