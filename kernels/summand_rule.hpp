// Says what updates that ranks sum (kernels/summands/summands.cpp) do to an element, for kernels/cpu and
// kernels/cuda alike: each operation is rounded by itself, so that every device gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "number_codes.hpp"

#ifdef __CUDACC__
namespace prun::cuda {
#define PRUN_RULE __device__ __forceinline__
PRUN_RULE float plus(float a, float b) { return __fadd_rn(a, b); }
PRUN_RULE double plus(double a, double b) { return __dadd_rn(a, b); }
PRUN_RULE float quotient(float a, float b) { return __fdiv_rn(a, b); }
PRUN_RULE double quotient(double a, double b) { return __ddiv_rn(a, b); }
PRUN_RULE float root(float x) { return __fsqrt_rn(x); }
PRUN_RULE double root(double x) { return __dsqrt_rn(x); }
#else
#define PRUN_RULE inline
namespace prun::cpu::PRUN_ISA {
template <class C>
C plus(C a, C b) {
  return a + b;
}
template <class C>
C quotient(C a, C b) {
  return a / b;
}
template <class C>
C root(C x) {
  return std::sqrt(x);
}
#endif

// Computes beta / summands m + (1 - beta) clip gradient.
template <class C>
struct MomentumRule {
  C of_m, of_gradient;

  PRUN_RULE MomentumRule(double beta, std::int64_t summands, double clip)
      : of_m(static_cast<C>(beta / static_cast<double>(summands))),
        of_gradient(static_cast<C>((1 - beta) * clip)) {}
  PRUN_RULE C operator()(C gradient, C m) const {
    return plus(product(of_m, m), product(of_gradient, gradient));
  }
};

// Computes sum / (sqrt(v by_v) + eps).
template <class C>
struct FrozenRule {
  C by_v, eps;

  // Must be called on the host, once.
  FrozenRule(double least, double beta, std::int64_t frozen_at)
      : by_v(static_cast<C>(frozen_at > 0 ? 1 / (1 - std::pow(beta, static_cast<double>(frozen_at))) : 1.0)),
        eps(static_cast<C>(least)) {}
  PRUN_RULE C operator()(C sum, C v) const { return quotient(sum, plus(root(product(v, by_v)), eps)); }
};

#undef PRUN_RULE
}
