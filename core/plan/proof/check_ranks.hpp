// Checks what ranks must agree on before they start: a mismatch would hang them. Example: rank 0 orders two
// all-reduces of one communicator otherwise than rank 1: refused, with both calls.
#pragma once

#include <span>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct RankPlan {
  std::int64_t rank = 0;
  const Plan* plan = nullptr;  // shared by equal ranks
};

// All members of a communicator must request the same collectives in the same order; a send between stages
// must match the receive of the same microbatch. Throws an Error that names ranks, queue and the first
// difference. Ranks that share a plan are not compared. The order over several communicators matters only if
// they compete: see deadlock.hpp.
void check_ranks(const Program& program, std::span<const RankPlan> ranks);

// Returns SHA-256 of what ranks must agree on: functions, layout, calls. Omits what depends on a rank's
// threads: offsets within scratch, its size, and waits within the rank.
std::string fingerprint(const Program& program, const Plan& plan);

}  // namespace prun
