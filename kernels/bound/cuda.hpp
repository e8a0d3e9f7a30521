// Declares halt_beyond: see kernels/bound/bound.cpp.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Sets *halt to 1 where the first number of any layer is larger than its second.
void halt_beyond(const double* needed, std::int64_t layers, double* halt, Stream stream);

}  // namespace prun::cuda
