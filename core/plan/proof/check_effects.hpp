// Checks whether a plan calls all ops of its program.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "plan/plan.hpp"

namespace prun {

using CalledPieces = std::set<std::pair<std::int32_t, std::int32_t>>;  // function and piece

// Checks that each piece of each function is called, and has the ops that the program has there.
void check_effects(const Program& program, const Plan& plan, const CalledPieces& called);

}  // namespace prun
