// Checks whether a checkpoint fits the recipe that goes on from it.
#pragma once

#include <vector>

#include "plan/persistent.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {

// Says whether a checkpoint has a tensor of that type and shape.
bool has_alike(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape);

// Says whether it has one of that type which differs in its first extent at most: for a state that ranks have
// apart, the number of these.
bool has_rows(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape);

// Throws if a tensor that the assembly keeps is missing, or is of another shape or type. Returns those that
// are there: all, unless run.changed names a strategy that has added parameters since.
std::vector<PersistentTensor> has_tensors(const Assembly& assembly, const CheckpointFiles& files);

// Throws likewise, and also if there is more than these, samples are counted in other sets, or the checkpoint
// lies in the folder of another step or run.
void check_fits(const Assembly& assembly, const CheckpointFiles& files);

}  // namespace prun
