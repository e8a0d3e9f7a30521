// Declares the op `positions`: which position is at each place of a rank's part of the sequences.
#pragma once

#include "cuda/launch.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cuda {

// Writes the positions of `count` places from `first` on.
void positions(std::int32_t* result, std::int64_t first, std::int64_t count, const SequenceOrder& order,
               Stream stream);

}  // namespace prun::cuda
