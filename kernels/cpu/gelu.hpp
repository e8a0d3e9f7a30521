// Defines gelu in its tanh form, as a gate, and its derivative.
#pragma once

#include <numbers>

#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {

// Since 0.5 (1 + tanh(u)) = sigmoid(2u), the tanh form needs one exponential and one division. gelu_slope is
// 2u/x without its cubic part.
template <class C>
inline constexpr C gelu_slope = C(2 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
template <class C>
inline constexpr C gelu_cubic = C(0.044715);

template <class C>
Sigmoid<C> gelu_gate(C x) {
  return sigmoid(gelu_slope<C> * x * (C(1) + gelu_cubic<C> * (x * x)));
}

template <class C>
C gelu_derivative(C x) {
  const Sigmoid<C> gate = gelu_gate(x);
  const C slope = gelu_slope<C> * (C(1) + C(3) * gelu_cubic<C> * (x * x));
  return gate.value * (C(1) + x * slope * gate.rest);
}

}  // namespace prun::cpu::PRUN_ISA
