// Finds what one of a microbatch's functions keeps for a later one.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct SavedValue {
  Id value = none;
  FunctionKind writer = FunctionKind::forward;
};
// Returns a segment's activations that have no home yet, in the order of their first reads.
std::vector<SavedValue> saved_values(const Program& program, const SegmentData& segment, const Homes& homes);

}  // namespace prun
