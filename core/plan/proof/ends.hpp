// Proves that every step of a run ends, whatever delays its queues: queues that take so many pieces of work
// and no more, and exchanges that compete for a place.
//
// No choice is made in a run: each queue waits for something fixed, and goes on once it is there. So either
// all orders of events end or none does, and one of them is tried. A piece of work waits for such of its own
// step and of earlier ones only, and from the second step on all steps are alike: two are tried. Deeper
// queues or more places never do harm.
#pragma once

#include <span>

#include "plan/proof/queue_limits.hpp"
#include "plan/proof/simulated_rank.hpp"

namespace prun {

// Throws unsupported if steps do not end: it names ranks, queues and calls that wait for each other, what is
// too small, and the least that would be enough.
void check_steps_end(std::span<const SimulatedRank> ranks, const Limits& limits);

}  // namespace prun
