// Checks that a plan calls every op of its program: a plan without an update would pass the replay of memory.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "plan/plan.hpp"

namespace prun {

using CalledPieces = std::set<std::pair<std::int32_t, std::int32_t>>;  // function and piece

// Each piece of each function must be called, with the ops of the program.
void check_effects(const Program& program, const Plan& plan, const CalledPieces& called);

}  // namespace prun
