// exp and sigmoid as the kernels need them: float to within a few units in the last place, double as the
// library has it.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }

__device__ __forceinline__ float inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // within one unit in the last place
  return y;
}
__device__ __forceinline__ double inverse(double x) { return 1.0 / x; }

// 1 / (1 + e^-x), and what is missing to 1, each to full relative precision.
template <class C>
struct Sigmoid {
  C value;
  C rest;
};

template <class C>
__device__ __forceinline__ Sigmoid<C> sigmoid(C x) {
  const C bounded = x < C(-80) ? C(-80) : x;  // so that the exponential stays finite
  const C e = exp_of(-bounded);
  const C value = inverse(C(1) + e);
  return {value, e * value};
}

}  // namespace prun::cuda
