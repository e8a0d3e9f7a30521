// Declares cap_choices and count_dropped: see kernels/capacity/capacity.cpp.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct CapacityShape {
  std::int64_t sequences, positions, choices, experts;
  std::int64_t most;  // limits the choices; 0: all are kept
};

// Returns bytes.
std::int64_t cap_workspace(const CapacityShape& shape);

// `weight` and `positions` may be null. C is float or double.
template <class C>
void cap_choices(const std::int32_t* index, const C* weight, const std::int32_t* positions,
                 std::int32_t* kept, const CapacityShape& shape, void* workspace, Stream stream);

// `dropped` is the layer's own number.
void count_dropped(const std::int32_t* index, const std::int32_t* targets, double* dropped,
                   const CapacityShape& shape, Stream stream);

}  // namespace prun::cuda
