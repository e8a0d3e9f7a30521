// Whether steps end where queues and exchanges are limited: neither what things take is counted, nor what a
// feeder hands over ahead of its step held back.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "simulate/queue_limits.hpp"
#include "simulate/simulated_rank.hpp"

namespace prun {

// Says, for two steps, which lane waits for which where they do not end; nothing where they do.
std::optional<std::string> standstill(std::span<const SimulatedRank> ranks, const Limits& limits);

}  // namespace prun
