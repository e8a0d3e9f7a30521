// Inserts the exchanges of placement: from a value's placement on an axis to the wanted one.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "placement/axis_state.hpp"

namespace prun {

// Says whether a placement serves as the wanted one: what is the same everywhere is the largest that any rank
// has.
bool serves(const AxisPlacement& have, const AxisPlacement& wanted);

class AxisExchanges {
 public:
  explicit AxisExchanges(AxisState& axis) : axis_(axis), program_(axis.program()) {}

  // Forgets what has been exchanged in the function before, which is not there in this one.
  void begin_function() { exchanged_.clear(); }
  // Returns the same value with the wanted placement; it is exchanged once a function. A value sharded on
  // another dimension is as large, so what forward has exchanged so is kept for backward.
  Id converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function, Id before);

 private:
  using Exchanged = std::vector<std::pair<Id, Id>>;  // pairs of a value and its copy with another placement

  Id exchange(Id id, const AxisPlacement& wanted);
  Id reduced_in_parts(Id id, const AxisPlacement& wanted);
  Id swapped(Id id, const AxisPlacement& wanted);
  Id reduced(Id id);
  Id counted_once(Id id);
  Id along(Id id, const char* kind, const Name& dim, const AxisPlacement& result);
  Id insert(Id id, const char* kind, std::span<const Id> operands, std::span<const AttrValue> attrs,
            const AxisPlacement& result);
  std::ptrdiff_t place_of(Id id, const Name& dim) const;

  AxisState& axis_;
  Program& program_;
  struct {
    Id segment = none;
    FunctionKind function = FunctionKind::forward;
    Id before = none;
  } place_;                          // place where exchanges are inserted
  Exchanged exchanged_;              // exchanged in this function
  std::map<Id, Exchanged> swapped_;  // exchanged by a segment's forward, along another dimension
};

}  // namespace prun
