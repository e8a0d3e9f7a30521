// Counts the host memory of launches that are bound in advance: arguments of each kernel, ready to run.
// Example: 32 layers × 4 microbatches with 20 kernels each need some 2500 rows of arguments, unless calls
// have equal addresses.
#pragma once

#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace prun {

// ------------------------------------------------------------------- bound calls

// Calls with equal keys share arguments. `side`: staging buffer.
using BoundKey = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, std::int32_t,
                            std::int32_t, std::int32_t, int, std::vector<std::uint32_t>>;
BoundKey bound_key(const Plan& plan, const Call& call, int side);

// Returns the most bytes that they take.
std::int64_t bound_bytes(const Plan& plan);

// ------------------------------------------------------------------- shifted
// Who sends what to whom if parts of a sequence shift by `distance` positions. Parts beyond the ends are
// dropped, and a part that stays with its rank is not sent. Example: 4 ranks with 2 consecutive parts each,
// distance 1: rank 0 sends part 1 to rank 1, and keeps part 0.

struct ShiftedPiece {
  CommKind kind = CommKind::send;  // or recv
  std::int32_t peer = -1;
  std::int64_t piece = 0;  // of `in` for a send, of `out` for a receive
};

// Returns what one of `members` sends and receives. All members list them in the same order, so they may also
// run one by one.
std::vector<ShiftedPiece> shifted_pieces(const PlannedExchange& exchange, std::int64_t place,
                                         std::int64_t members);

}  // namespace prun
