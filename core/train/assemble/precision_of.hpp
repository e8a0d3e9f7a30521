// The number formats that a recipe asks for.
#pragma once

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"

namespace prun {

Precision precision_of(const Recipe& recipe);

}  // namespace prun
