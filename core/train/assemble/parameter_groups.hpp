// [[optimizer.group]]: which parameters are frozen, decay or learn at another rate.
#pragma once

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// Throws an Error for each group that no parameter belongs to.
void apply_groups(const Recipe& recipe, Program& program);

}  // namespace prun
