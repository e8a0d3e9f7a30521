// Checks what ranks must agree on before they start.
#pragma once

#include <span>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct RankPlan {
  std::int64_t rank = 0;
  const Plan* plan = nullptr;  // plan, shared by ranks that do the same
};

// Checks that every member of a communicator requests the same exchanges in the same order; a send between
// stages meets the receive of the same microbatch. Throws an Error that names ranks, queue and the first
// difference. Ranks that share a plan are not compared with each other. In which order a rank uses several
// communicators matters only where they compete for something: sim/ends.hpp.
void check_ranks(const Program& program, std::span<const RankPlan> ranks);

// Returns a fingerprint (SHA-256) of what ranks must agree on in a plan: functions, layout, calls. It leaves
// out what may differ between ranks, since it follows from how many threads each has: where within the
// scratch region a value lies, the size of that region, and which queue waits for which within the rank.
std::string fingerprint(const Program& program, const Plan& plan);

}  // namespace prun
