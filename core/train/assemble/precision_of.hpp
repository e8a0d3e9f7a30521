// Reads the number formats that a recipe requests.
#pragma once

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"

namespace prun {

Precision precision_of(const Recipe& recipe);

}  // namespace prun
