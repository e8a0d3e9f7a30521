// Computes the turns of rotary positions, for the kernels that turn channels (rope.cpp, latent.cpp).
#pragma once

#include <algorithm>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "rope_frequency.hpp"

namespace prun::cpu::PRUN_ISA {

// Holds what one thread keeps: the turn of each pair of channels per position, and the turns of one position.
template <class C>
struct TimeSlots {
  double* frequency;
  C* cosine;
  C* sine;
  C query_scale = 1, key_scale = 1, turned_scale = 1;

  static TimeSlots take(Scratch& scratch, std::int64_t pairs) {
    return {scratch.take<double>(pairs), scratch.take<C>(pairs), scratch.take<C>(pairs)};
  }
};

template <class C>
void set_frequencies(TimeSlots<C>& turns, std::int64_t pairs, const RopeTurn& turn) {
  turns.query_scale = static_cast<C>(turn.query_scale), turns.key_scale = static_cast<C>(turn.key_scale);
  turns.turned_scale = static_cast<C>(turn.turned_scale);
  for (std::int64_t i = 0; i < pairs; ++i) turns.frequency[i] = rope_frequency(turn, i, pairs);
}

template <class C>
void set_position(const TimeSlots<C>& turns, std::int64_t pairs, double position) {
  const double* __restrict frequency = turns.frequency;
  C* __restrict cosine = turns.cosine, * __restrict sine = turns.sine;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const SineCosine turn = sine_cosine(position * frequency[i]);
    cosine[i] = static_cast<C>(turn.cosine);
    sine[i] = static_cast<C>(turn.sine);
  }
}

// Calls body(row, turns) for each position of each sample, whose rows follow sample after sample. `direction`
// is 1, or -1 to turn back.
template <class T, class Body>
void for_turned_rows(std::int64_t batch, std::int64_t seq, std::int64_t pairs, const Places& places,
                     double direction, const RopeTurn& turn, const KernelArgs& args,
                     const KernelContext& context, const Body& body) {
  const std::int64_t tasks = std::min<std::int64_t>(seq, context.workers->count);
  parallel(*context.workers, tasks, [&](std::int64_t task) {
    Scratch scratch(args.workspace);
    TimeSlots<Compute<T>> turns = {};
    for (std::int64_t t = 0; t <= task; ++t) turns = TimeSlots<Compute<T>>::take(scratch, pairs);
    set_frequencies(turns, pairs, turn);
    for (std::int64_t s = seq * task / tasks; s < seq * (task + 1) / tasks; ++s) {
      const auto position = static_cast<double>(places.position(s));
      set_position(turns, pairs, direction * position);
      turns.query_scale = static_cast<Compute<T>>(rope_query_scale(turn, position));
      for (std::int64_t b = 0; b < batch; ++b) body(b * seq + s, turns);
    }
  });
}

// Returns the bytes that its threads need for their turns.
inline std::int64_t turns_workspace(std::int64_t pairs, std::int32_t threads) {
  Scratch scratch;
  for (std::int32_t t = 0; t < threads; ++t) TimeSlots<double>::take(scratch, pairs);
  return scratch.bytes();
}

}  // namespace prun::cpu::PRUN_ISA
