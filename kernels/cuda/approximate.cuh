// Wraps instructions that CUDA has no exact name for; subnormal numbers count as zero.
#pragma once

namespace prun::cuda {

__device__ __forceinline__ float exp2_approximately(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / x, within one unit in the last place.
__device__ __forceinline__ float inverse_approximately(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace prun::cuda
