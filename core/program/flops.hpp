// Counts what a program computes for its model, however often it computes it.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Returns the model FLOPs of one step's forward and backward, without recomputation: three times forward's.
double model_flops(const Program& program);
// Returns the same for one repetition of a segment.
double segment_flops(const Program& program, Id segment);

}  // namespace prun
