// Says who sends what to whom where the parts of a sequence shift by a number of places: the part numbered c
// goes to where c + distance is. What would go beyond the ends goes nowhere, and what stays with its member
// is not exchanged, so only those who need a part get it.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace prun {

struct ShiftedPiece {
  CommKind kind = CommKind::send;  // or recv
  std::int32_t peer = -1;
  std::int64_t piece = 0;  // of `in` if it is sent, of `out` if it is received
};

// Returns what one of `members` sends and receives. All members list what they share in the same order, so
// that they may also do one after the other.
std::vector<ShiftedPiece> shifted_pieces(const PlannedExchange& exchange, std::int64_t place,
                                         std::int64_t members);

}  // namespace prun
