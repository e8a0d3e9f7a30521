// rope: queries, keys and values out of their packed projection, the first two turned by their position and
// scaled;
// rope_grad turns their gradients back and packs them.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "rope_frequency.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

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

// Pair i is made of channels i and i + pairs.
template <class T, class C>
void rotate(const T* __restrict x, T* __restrict y, const Turns<C>& turns, std::int64_t pairs, C scale) {
  const C* __restrict cosine = turns.cosine, * __restrict sine = turns.sine;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const C first = load(x[i]), second = load(x[i + pairs]);
    store(y[i], (first * cosine[i] - second * sine[i]) * scale);
    store(y[i + pairs], (second * cosine[i] + first * sine[i]) * scale);
  }
}

// Where one position's heads lie, together and apart.
template <class T>
struct Position {
  T *x, *q, *k, *v;
};

template <class T, class C>
void turn_apart(Position<T> at, const Turns<C>& turns, const Tensor& q) {
  const std::int64_t width = q.dim[4];
  for (std::int64_t head = 0; head < q.dim[2]; ++head) {
    for (std::int64_t query = 0; query < q.dim[3]; ++query, at.x += width, at.q += width)
      rotate(at.x, at.q, turns, width / 2, turns.query_scale);
    rotate(at.x, at.k, turns, width / 2, turns.key_scale);
    std::copy_n(at.x + width, width, at.v);
    at.x += 2 * width, at.k += width, at.v += width;
  }
}

template <class T, class C>
void turn_together(Position<T> at, const Turns<C>& turns, const Tensor& q) {
  const std::int64_t width = q.dim[4];
  for (std::int64_t head = 0; head < q.dim[2]; ++head) {
    for (std::int64_t query = 0; query < q.dim[3]; ++query, at.x += width, at.q += width)
      rotate(at.q, at.x, turns, width / 2, turns.query_scale);
    rotate(at.k, at.x, turns, width / 2, turns.key_scale);
    std::copy_n(at.v, width, at.x + width);
    at.x += 2 * width, at.k += width, at.v += width;
  }
}

// The packed operand and the three apart, in whichever direction.
struct Operands {
  const Tensor &x, &q, &k, &v;
  std::int64_t first = q.start[1];  // position
};

// body(position, turns) for every position of every sample.
template <class T, class Body>
void for_positions(const Operands& o, double direction, const KernelArgs& args, const KernelContext& context,
                   const Body& body) {
  const std::int64_t batch = o.q.dim[0], seq = o.q.dim[1], pairs = o.q.dim[4] / 2;
  const std::int64_t tasks = std::min<std::int64_t>(seq, context.workers->count);
  parallel(*context.workers, tasks, [&](std::int64_t task) {
    Scratch scratch(args.workspace);
    Turns<Compute<T>> turns = {};
    for (std::int64_t t = 0; t <= task; ++t) turns = Turns<Compute<T>>::take(scratch, pairs);
    set_frequencies(turns, pairs, rope_turn(args.attrs));
    for (std::int64_t s = seq * task / tasks; s < seq * (task + 1) / tasks; ++s) {
      set_position(turns, pairs, direction * static_cast<double>(o.first + s));
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t row = b * seq + s, key = row * o.k.inner(2);
        body(Position<T>{o.x.as<T>() + row * o.x.inner(3), o.q.as<T>() + row * o.q.inner(3),
                         o.k.as<T>() + key, o.v.as<T>() + key},
             turns);
      }
    }
  });
}

template <class T>
void rope(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_positions<T>({o[0], o[1], o[2], o[3]}, 1.0, args, context,
                   [&](const Position<T>& at, const auto& turns) { turn_apart(at, turns, o[1]); });
}

template <class T>
void rope_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_positions<T>({o[0], o[2], o[3], o[4], position_in(o[1])}, 1.0, args, context,
                   [&](const Position<T>& at, const auto& turns) { turn_apart(at, turns, o[2]); });
}

template <class T>
void rope_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_positions<T>({o[3], o[0], o[1], o[2]}, -1.0, args, context,
                   [&](const Position<T>& at, const auto& turns) { turn_together(at, turns, o[0]); });
}

std::int64_t rope_workspace(const OpShape& s, std::int32_t threads) {
  Scratch scratch;
  for (std::int32_t t = 0; t < threads; ++t) Turns<double>::take(scratch, s.operand[0].dims[4].extent / 2);
  return scratch.bytes();
}

Kernel select_rope(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope<T>; });
}

Kernel select_rope_at(const OpShape& s) {
  if (!same_type(s, {0, 2, 3, 4}) || s.operand[1].dtype != DType::f64) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_at<T>; });
}

Kernel select_rope_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_grad<T>; });
}

}  // namespace

std::vector<KernelDef> rope_kernels();
std::vector<KernelDef> rope_kernels() {
  return {{"rope", select_rope, rope_workspace},
          {"rope_at", select_rope_at, rope_workspace},
          {"rope_grad", select_rope_grad, rope_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
