// Defines gelu in its tanh form, and the factor of `up` in gated activations, with their slopes.
#pragma once

#include <numbers>

#include "cuda/math.cuh"

namespace prun::cuda {

// Since 0.5 (1 + tanh(u)) = sigmoid(2u), the tanh form needs one exponential and one division. gelu_slope is
// 2u/x without its cubic part.
template <class C>
inline constexpr C gelu_slope = C(2 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
template <class C>
inline constexpr C gelu_cubic = C(0.044715);

template <class T, class C = Compute<T>>
__device__ __forceinline__ Sigmoid<C> gelu_gate(C x) {
  return sigmoid<T>(gelu_slope<C> * x * (C(1) + gelu_cubic<C> * (x * x)));
}

template <class T>
struct Gelu {
  using C = Compute<T>;
  __device__ C operator()(C x) const { return x * gelu_gate<T>(x).value; }
};

template <class T>
struct GeluGrad {
  using C = Compute<T>;
  __device__ C operator()(C dy, C x) const {
    const Sigmoid<C> gate = gelu_gate<T>(x);
    const C slope = gelu_slope<C> * (C(1) + C(3) * gelu_cubic<C> * (x * x));
    return dy * (gate.value * (C(1) + x * slope * gate.rest));
  }
};

// Holds the factor of `up`, and its slope.
template <class C>
struct Gated {
  C value, slope;
};

template <class T>
struct SiluGate {
  using C = Compute<T>;
  static __device__ C value(C g) { return g * sigmoid<T>(g).value; }
  static __device__ Gated<C> of(C g) {
    const Sigmoid<C> s = sigmoid<T>(g);
    return {g * s.value, s.value * (C(1) + g * s.rest)};
  }
};

template <class T>
struct GeluGate {
  using C = Compute<T>;
  static __device__ C value(C g) { return Gelu<T>()(g); }
  static __device__ Gated<C> of(C g) {
    const Sigmoid<C> s = gelu_gate<T>(g);
    const C slope = gelu_slope<C> * (C(1) + C(3) * gelu_cubic<C> * (g * g));
    return {g * s.value, s.value * (C(1) + g * slope * s.rest)};
  }
};

}  // namespace prun::cuda
