// Checks whether a plan calls all that its program asks for.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "plan/plan.hpp"

namespace prun {

using CalledPieces = std::set<std::pair<std::int32_t, std::int32_t>>;  // function, piece

// Each piece of each function is called, and has the ops that the program has there.
void check_effects(const Program& program, const Plan& plan, const CalledPieces& called);

}  // namespace prun
