// Checks what ranks must agree on before they start.
#pragma once

#include <span>
#include <string>

#include "plan/plan.hpp"

namespace prun {

struct RankPlan {
  std::int64_t rank = 0;
  const Plan* plan = nullptr;  // shared by ranks that do the same
};

// Every member of a communicator asks for the same exchanges in the same order; a send between stages meets
// the receive of the same microbatch. Throws an Error that names ranks, queue and the first difference. Ranks
// that share a plan are not compared with each other. In which order a rank uses several communicators
// matters only where they compete for something: sim/ends.hpp.
void check_ranks(const Program& program, std::span<const RankPlan> ranks);

// A fingerprint (SHA-256) of what ranks must agree on in a plan: functions, layout, calls. What is a rank's
// own affair is left out, since it follows from how many threads it has: where within the scratch region a
// value lies, the size of that region, and which queue waits for which within the rank.
std::string fingerprint(const Program& program, const Plan& plan);

}  // namespace prun
