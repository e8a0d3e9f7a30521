// Reads the tensors of a checkpoint into the memory of a rank.
#pragma once

#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {

// Reads the rank's part of every tensor, by all threads that the rank may use. Throws if data cannot be
// trusted. For an assembly that keeps parameters alone these may be averages.
void read_all(const Assembly& assembly, const CheckpointFiles& files, const PlanMemory& memory,
              Weights which = Weights::trained);

}  // namespace prun
