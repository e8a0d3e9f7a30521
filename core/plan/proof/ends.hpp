// Proves that every step of a run ends, with any delays: queues that hold a limited number of works, and
// collectives that compete for a limited number of places.
//
// A run makes no choices: each queue waits for a fixed event. So all orders of events end or none does, and
// testing one suffices. Work depends only on its own step and earlier ones, and from the second step on all
// are equal, so two steps suffice. Example: two queues of depth 2 filled by one thread; if the first blocks
// on a send whose receive is behind the second queue's full depth, the ranks deadlock.
#pragma once

#include <span>

#include "plan/proof/queue_limits.hpp"
#include "plan/proof/simulated_rank.hpp"

namespace prun {

// Throws unsupported with ranks, queues and calls that wait for each other, what is too small, and the least
// that would do.
void check_steps_end(std::span<const SimulatedRank> ranks, const Limits& limits);

}  // namespace prun
