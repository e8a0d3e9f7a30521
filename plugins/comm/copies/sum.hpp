// Adds up what members hold, by a kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "schedule.hpp"

namespace prun::copies {

// Refuses an operation that reduces a type of which no sums and maxima are made; `group` begins the message.
void check_can_fold(const CommOp& op, const std::string& group);

// Loads all kernels, while no stream waits.
void load_folds();

// Enqueues the sum or the maximum, in the order of the members, on so many blocks at most.
void fold(const Summands& summands, int blocks, cudaStream_t stream);

}  // namespace prun::copies
