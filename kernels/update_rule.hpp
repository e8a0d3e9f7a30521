// Says what updates do to one element, for kernels/cpu and kernels/cuda alike: a fixed sequence of IEEE
// operations, so that every build and every device gives the same bits. No compiler may contract it:
// kernels/optimizer/cpu.cpp is built without that, and on a GPU each operation is an intrinsic.
#pragma once

#include <cmath>
#include <cstdint>

#include "prun/split_master.hpp"

#ifdef __CUDACC__
#define PRUN_RULE __device__ __forceinline__
namespace prun::cuda {
#else
#include "cpu/isa.hpp"
#define PRUN_RULE __attribute__((always_inline)) inline
namespace prun::cpu::PRUN_ISA {
#endif

// ---------------------------------------------------------------- operations
// Each rounded once.
#ifdef __CUDACC__
struct Ieee {
  static PRUN_RULE float mul(float a, float b) { return __fmul_rn(a, b); }
  static PRUN_RULE double mul(double a, double b) { return __dmul_rn(a, b); }
  static PRUN_RULE float add(float a, float b) { return __fadd_rn(a, b); }
  static PRUN_RULE double add(double a, double b) { return __dadd_rn(a, b); }
  static PRUN_RULE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static PRUN_RULE double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
  static PRUN_RULE float div(float a, float b) { return __fdiv_rn(a, b); }
  static PRUN_RULE double div(double a, double b) { return __ddiv_rn(a, b); }
  static PRUN_RULE float root(float a) { return __fsqrt_rn(a); }
  static PRUN_RULE double root(double a) { return __dsqrt_rn(a); }
};
#else
struct Ieee {
  template <class C>
  static PRUN_RULE C mul(C a, C b) {
    return a * b;
  }
  template <class C>
  static PRUN_RULE C add(C a, C b) {
    return a + b;
  }
  // Makes a library call where the instruction set has no such instruction.
  template <class C>
  static PRUN_RULE C fma(C a, C b, C c) {
    return std::fma(a, b, c);
  }
  template <class C>
  static PRUN_RULE C div(C a, C b) {
    return a / b;
  }
  template <class C>
  static PRUN_RULE C root(C a) {
    return std::sqrt(a);
  }
};
#endif

// Returns base^exponent, for a whole exponent: libraries differ in the last bits of theirs.
PRUN_RULE double power(double base, double exponent) {
  double result = 1;
  for (auto left = static_cast<std::uint64_t>(exponent); left > 0; left /= 2) {
    if (left % 2 != 0) result = Ieee::mul(result, base);
    base = Ieee::mul(base, base);
  }
  return result;
}

// ---------------------------------------------------------------- rounding by chance
// A float becomes one of the two bf16 around it, by the odds of what is cut off: a random number below 2^16
// is added to its bits. All of an element's are made of one word, that of its number in the stream (name,
// step), as core/base/random.hpp numbers words.
PRUN_RULE std::uint32_t first_chance(std::uint32_t word) { return word & 0xffffu; }  // for the first moment
PRUN_RULE std::uint32_t second_chance(std::uint32_t word) { return word >> 16; }
PRUN_RULE std::uint32_t weight_chance(std::uint32_t word) { return word * 0x9E3779B1u >> 16; }

PRUN_RULE std::uint16_t rounded_by(std::uint32_t chance, float value) {
  return static_cast<std::uint16_t>((value != value ? master_bits(value) : master_bits(value) + chance) >>
                                    16);
}

PRUN_RULE std::uint64_t stream_of(std::uint64_t name, double step) {
  const auto number = static_cast<std::uint64_t>(step);
  for (int shift = 0; shift < 64; shift += 8) name = (name ^ (number >> shift & 0xff)) * 0x100000001b3u;
  return name;
}

// ---------------------------------------------------------------- one step's numbers
// Worked out in double and rounded once to what is computed in.

// Returns the part of the weight that decay leaves.
PRUN_RULE double shrink_of(double rate, double decay) { return Ieee::add(1.0, -Ieee::mul(rate, decay)); }

// Holds the factors that moments lack since they began with zeros.
struct AdamBias {
  double first, second;

  AdamBias() = default;
  PRUN_RULE AdamBias(double beta1, double beta2, double step)
      : first(Ieee::add(1.0, -power(beta1, step))), second(Ieee::root(Ieee::add(1.0, -power(beta2, step)))) {}
};

template <class C>
struct AdamStep {
  C clip, mix1, keep2, mix2, growth, eps;
  C shrink, size;  // the tensor's, by its own rate and decay

  PRUN_RULE AdamStep(double beta1, double beta2, double epsilon, double clip_factor, const AdamBias& bias)
      : clip(static_cast<C>(clip_factor)),
        mix1(static_cast<C>(Ieee::add(1.0, -beta1))),
        keep2(static_cast<C>(beta2)),
        mix2(static_cast<C>(Ieee::add(1.0, -beta2))),
        growth(static_cast<C>(Ieee::div(1.0, bias.second))),
        eps(static_cast<C>(epsilon)),
        shrink(0),
        size(0) {}

  PRUN_RULE void choose(double rate, double decay, const AdamBias& bias) {
    shrink = static_cast<C>(shrink_of(rate, decay));
    size = static_cast<C>(Ieee::div(rate, bias.first));
  }

  // Updates the moments in place and returns the new weight.
  PRUN_RULE C update(C weight, C gradient, C& mean, C& square) const {
    const C g = Ieee::mul(clip, gradient);
    mean = Ieee::fma(mix1, Ieee::add(g, -mean), mean);
    square = Ieee::fma(keep2, square, Ieee::mul(Ieee::mul(mix2, g), g));
    const C scale = Ieee::fma(Ieee::root(square), growth, eps);
    return Ieee::fma(shrink, weight, -Ieee::mul(size, Ieee::div(mean, scale)));
  }
};

template <class C>
struct SgdStep {
  C clip, momentum;
  C shrink, rate;  // the tensor's

  PRUN_RULE SgdStep(double momentum_factor, double clip_factor)
      : clip(static_cast<C>(clip_factor)), momentum(static_cast<C>(momentum_factor)), shrink(0), rate(0) {}

  PRUN_RULE void choose(double tensor_rate, double decay) {
    shrink = static_cast<C>(shrink_of(tensor_rate, decay));
    rate = static_cast<C>(tensor_rate);
  }

  PRUN_RULE C update(C weight, C gradient) const {
    return Ieee::fma(shrink, weight, -Ieee::mul(rate, Ieee::mul(clip, gradient)));
  }
  // Updates with a buffer, in place.
  PRUN_RULE C update(C weight, C gradient, C& mean) const {
    mean = Ieee::fma(clip, gradient, Ieee::mul(momentum, mean));
    return Ieee::fma(shrink, weight, -Ieee::mul(rate, mean));
  }
};

// Computes a direction to step along, and the mean of gradients that it is made of.
template <class C>
struct MomentumStep {
  C clip, now, later;
  bool sign;

  PRUN_RULE MomentumStep(double mixed, double kept, bool signs, double clip_factor)
      : clip(static_cast<C>(clip_factor)),
        now(static_cast<C>(mixed)),
        later(static_cast<C>(kept)),
        sign(signs) {}

  // Updates the mean in place.
  PRUN_RULE C direction(C gradient, C& mean) const {
    const C g = Ieee::mul(clip, gradient), apart = Ieee::add(mean, -g);
    const C along = Ieee::fma(now, apart, g);
    mean = Ieee::fma(later, apart, g);
    return !sign ? along : along > 0 ? C(1) : along < 0 ? C(-1) : C(0);
  }
};

// Adds the weight behind update number `step` to the mean of all so far.
template <class C>
struct AverageStep {
  C mix;

  AverageStep() = default;
  PRUN_RULE AverageStep(double decay, double step)
      : mix(static_cast<C>(Ieee::div(Ieee::add(1.0, -decay), Ieee::add(1.0, -power(decay, step))))) {}

  PRUN_RULE C update(C average, C weight) const {
    return Ieee::fma(mix, Ieee::add(weight, -average), average);
  }
};

#ifdef __CUDACC__
}  // namespace prun::cuda
#else
}  // namespace prun::cpu::PRUN_ISA
#endif
