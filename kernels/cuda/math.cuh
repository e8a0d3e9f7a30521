// Computes exp and sigmoid for values stored as T: double by the library, float to within a few units in the
// last place, and values that are rounded to bf16 with far more than bf16's precision.
#pragma once

#include "cuda/approximate.cuh"
#include "cuda/device.cuh"

namespace prun::cuda {

template <class T>
__device__ __forceinline__ Compute<T> exp_of(Compute<T> x) {
  if constexpr (std::is_same_v<T, double>) {
    return exp(x);
  } else if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return exp2_approximately(x * 1.44269504f);
  }
}

__device__ __forceinline__ float inverse(float x) { return inverse_approximately(x); }
__device__ __forceinline__ double inverse(double x) { return 1.0 / x; }

// Holds 1 / (1 + e^-x), and its difference to 1, each to full relative precision.
template <class C>
struct Sigmoid {
  C value;
  C rest;
};

template <class T, class C = Compute<T>>
__device__ __forceinline__ Sigmoid<C> sigmoid(C x) {
  const C bounded = x < C(-80) ? C(-80) : x;  // keeps the exponential finite
  const C e = exp_of<T>(-bounded);
  const C value = inverse(C(1) + e);
  return {value, e * value};
}

}  // namespace prun::cuda
