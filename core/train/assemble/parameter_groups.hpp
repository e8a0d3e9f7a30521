// [[optimizer.group]]: which parameters are frozen, decay or learn at another rate, or by another optimizer.
#pragma once

#include <vector>

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// In the recipe's order, which Value::optimizer counts from 1 on.
std::vector<RecipeSection> groups_with_optimizers(const Recipe& recipe);

// Throws an Error for each group that no parameter belongs to.
void apply_groups(const Recipe& recipe, Program& program);

}  // namespace prun
