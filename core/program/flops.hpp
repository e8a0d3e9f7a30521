// Counts what a program computes for its model, however often it computes it.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Returns the model FLOPs of one step's forward and backward, without recomputation: three times forward's.
double model_flops(const Program& program);
// Returns those of one microbatch for each layer of the chain, embedding and head counted.
std::vector<double> chain_flops(const Program& program);

}  // namespace prun
