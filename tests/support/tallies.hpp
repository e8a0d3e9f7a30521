// Collects what the steps of a recipe have counted.
#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.hpp"
#include "train/loop/step_staging.hpp"

namespace prun::test {

// Returns for each step the tallies with that ending, which every rank is expected to have been told alike.
std::vector<StepTally> tallies_of(const Recipe& recipe, int steps, const std::string& ending);

// Expects that they have the same names and numbers.
void expect_same(const std::vector<StepTally>& there, const std::vector<StepTally>& alone,
                 const std::string& layout);

}  // namespace prun::test
