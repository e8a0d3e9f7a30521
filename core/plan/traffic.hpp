// How much an exchange is about.
#pragma once

#include "plan/plan.hpp"

namespace prun {

// Bytes that an operation among `members` ranks is about: what each has of the larger of `in` and `out`.
std::int64_t exchange_bytes(const PlannedExchange& exchange, std::int64_t members);

}  // namespace prun
