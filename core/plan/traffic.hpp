// How much a plan's exchanges move.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Bytes that an operation among `members` ranks is about: what each has of the larger of `in` and `out`.
std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members);

// Payload bytes each rank sends through a queue in a step.
double planned_bytes(const Mesh& mesh, const Plan& plan, std::int32_t queue);

}  // namespace prun
