// Finds how old the weights are that each layer trains with, by the recipe's schedule and stages.
#pragma once

#include <optional>

#include "plan/pipeline/lay_out_pipeline.hpp"
#include "program/delays.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {

// Returns the delays; `pipeline` has the stages; without it, one rank has them all, and optimizer.delays
// gives the delays. Throws if the recipe needs something that is impossible with such weights.
Delays delays_of(const Program& program, const std::optional<PipelineLayout>& pipeline, Delay delay,
                 const Recipe& recipe, const BatchArithmetic& batch);

}  // namespace prun
