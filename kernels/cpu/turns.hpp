// The turns of rotary positions, for the kernels that turn channels (rope.cpp, latent.cpp).
#pragma once

#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "rope_frequency.hpp"

namespace prun::cpu::PRUN_ISA {

// What one thread keeps: the turn of each pair of channels per position, and the turns of one position.
template <class C>
struct Turns {
  double* frequency;
  C* cosine;
  C* sine;
  C query_scale = 1, key_scale = 1;

  static Turns take(Scratch& scratch, std::int64_t pairs) {
    return {scratch.take<double>(pairs), scratch.take<C>(pairs), scratch.take<C>(pairs)};
  }
};

template <class C>
void set_frequencies(Turns<C>& turns, std::int64_t pairs, const RopeTurn& turn) {
  turns.query_scale = static_cast<C>(turn.query_scale), turns.key_scale = static_cast<C>(turn.key_scale);
  for (std::int64_t i = 0; i < pairs; ++i) turns.frequency[i] = rope_frequency(turn, i, pairs);
}

template <class C>
void set_position(const Turns<C>& turns, std::int64_t pairs, double position) {
  const double* __restrict frequency = turns.frequency;
  C* __restrict cosine = turns.cosine, * __restrict sine = turns.sine;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const SineCosine turn = sine_cosine(position * frequency[i]);
    cosine[i] = static_cast<C>(turn.cosine);
    sine[i] = static_cast<C>(turn.sine);
  }
}

}  // namespace prun::cpu::PRUN_ISA
