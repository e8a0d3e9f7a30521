// Says why the update of a step was masked, and ends a run because of it.
#pragma once

#include <cstdint>
#include <string>

#include "train/loop/step_staging.hpp"

namespace prun {

// Says what the step needed more of than was planned for, by the layer that needed most; empty if it did not.
std::string beyond_text(std::int64_t step, const StepResult& result);
// Says that the update of a step was masked, and why.
std::string non_finite_text(std::int64_t step, const StepResult& result);

// Says what that does to the scale of the loss; the text is empty if there is none.
std::string scale_text(double before, double next);

// Ends the run: the scale of the loss cannot fall, the step went beyond what was planned, or neither.
[[noreturn]] void throw_non_finite(const Program& program, std::int64_t step, const StepResult& result);

}  // namespace prun
