// Refuses batches whose order a program's layout does not allow.
#pragma once

#include "program/step_program.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {

// Throws if a rank's part of a microbatch differs from what was counted for the batch.
void check_rows(const Program& program, const BatchArithmetic& batch);
// Throws if the layout does not allow the recipe's order of microbatches.
void check_order(const BatchArithmetic& batch, bool in_pipeline);

}  // namespace prun
