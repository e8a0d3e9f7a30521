// Finds whether steps end where queues and exchanges are limited: it ignores the times of things, and lets a
// feeder hand over ahead of its step.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "simulate/queue_limits.hpp"
#include "simulate/simulated_rank.hpp"

namespace prun {

// Says, for two steps, which lane waits for which if they do not end; returns nothing if they do.
std::optional<std::string> standstill(std::span<const SimulatedRank> ranks, const Limits& limits);

}  // namespace prun
