// Handles exchanges over an axis that the program has before placement comes to it: those of the model and of
// strategies, and those over an axis before this one.
#pragma once

#include <array>
#include <map>

#include "placement/axis_sums.hpp"

namespace prun {

class StandingExchanges {
 public:
  explicit StandingExchanges(AxisState& axis);

  // Adds to what the op wants whole: an all-to-all over an axis before this one needs dimensions whole here.
  // The blocks of a value are better made from whole values, and combined as they lie.
  void want_whole(const Op& op, OpShape& shape) const;
  // Places an exchange over this axis, which must find the placement that it changes.
  void meet(const Op& op, const OpShape& shape, AxisSums& sums);

 private:
  AxisState& axis_;
  std::map<Id, std::array<Name, 2>> swapped_blocks_;  // blocks of all-to-alls
};

}  // namespace prun
