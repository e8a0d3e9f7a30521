// Reads the time of the GPU's own clock.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Writes the nanoseconds of the GPU's own clock to memory that it reaches.
void write_time(std::uint64_t* to, Stream stream);

}  // namespace prun::cuda
