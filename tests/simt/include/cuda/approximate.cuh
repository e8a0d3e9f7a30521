// In place of kernels/cuda/approximate.cuh, whose instructions are a GPU's.
#pragma once

#include <cmath>

namespace prun::cuda {

inline float exp2_approximately(float x) { return std::exp2(x); }
inline float inverse_approximately(float x) { return 1.0f / x; }

}  // namespace prun::cuda
