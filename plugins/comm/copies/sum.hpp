// Adds up what members hold, by a kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "schedule.hpp"

namespace prun::copies {

// Says whether sums and maxima of this type can be made.
bool can_fold(DType dtype);

// Loads all kernels, while no stream waits.
void load_folds();

// Enqueues the sum or the maximum, in the order of the members, on so many blocks at most.
void fold(const Summands& summands, int blocks, cudaStream_t stream);

}  // namespace prun::copies
