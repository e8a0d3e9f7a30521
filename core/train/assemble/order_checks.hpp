// Refuses batches that a program's layout cannot take through it.
#pragma once

#include "program/step_program.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {

// Throws where a rank's part of a microbatch is not what the batch was counted by.
void check_rows(const Program& program, const BatchArithmetic& batch);
// Throws where the recipe's order of microbatches is not one that the layout leaves open.
void check_order(const BatchArithmetic& batch, bool in_pipeline);

}  // namespace prun
