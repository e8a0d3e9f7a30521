// rope: rotary position embedding on packed queries, keys and values; the last packed slot, the value, stays.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// What one thread keeps: the turn of each pair of channels per position, and the turns of one position.
template <class C>
struct Turns {
  double* frequency;
  C* cosine;
  C* sine;

  static Turns take(Scratch& scratch, std::int64_t pairs) {
    return {scratch.take<double>(pairs), scratch.take<C>(pairs), scratch.take<C>(pairs)};
  }
};

template <class C>
void set_frequencies(const Turns<C>& turns, std::int64_t pairs, double base) {
  for (std::int64_t i = 0; i < pairs; ++i)
    turns.frequency[i] = std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
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
void rotate(const T* __restrict x, T* __restrict y, const Turns<C>& turns, std::int64_t pairs) {
  const C* __restrict cosine = turns.cosine, * __restrict sine = turns.sine;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const C first = load(x[i]), second = load(x[i + pairs]);
    store(y[i], first * cosine[i] - second * sine[i]);
    store(y[i + pairs], second * cosine[i] + first * sine[i]);
  }
}

// All heads of one position of one sample.
template <class T, class C>
void rotate_heads(const T* x, T* y, const Turns<C>& turns, const Tensor& shape) {
  const std::int64_t packed = shape.dim[3], width = shape.dim[4];
  for (std::int64_t head = 0; head < shape.dim[2]; ++head) {
    for (std::int64_t slot = 0; slot + 1 < packed; ++slot, x += width, y += width)
      rotate(x, y, turns, width / 2);
    std::copy_n(x, width, y);
    x += width, y += width;
  }
}

template <class T>
void rope(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  const std::int64_t batch = x.dim[0], seq = x.dim[1], pairs = x.dim[4] / 2, stride = x.inner(3);
  const double direction = args.attrs[1].i ? -1.0 : 1.0;
  const std::int64_t tasks = std::min<std::int64_t>(seq, context.workers->count);
  parallel(*context.workers, tasks, [&](std::int64_t task) {
    Scratch scratch(args.workspace);
    Turns<Compute<T>> turns = {};
    for (std::int64_t t = 0; t <= task; ++t) turns = Turns<Compute<T>>::take(scratch, pairs);
    set_frequencies(turns, pairs, args.attrs[0].f);
    for (std::int64_t s = seq * task / tasks; s < seq * (task + 1) / tasks; ++s) {
      set_position(turns, pairs, direction * static_cast<double>(x.start[1] + s));
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t offset = (b * seq + s) * stride;
        rotate_heads(x.as<const T>() + offset, y.as<T>() + offset, turns, x);
      }
    }
  });
}

std::int64_t rope_workspace(const OpShape& s, std::int32_t threads) {
  Scratch scratch;
  for (std::int32_t t = 0; t < threads; ++t) Turns<double>::take(scratch, s.operand[0].dims[4].extent / 2);
  return scratch.bytes();
}

Kernel select_rope(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope<T>; });
}

}  // namespace

std::vector<KernelDef> rope_kernels();
std::vector<KernelDef> rope_kernels() { return {{"rope", select_rope, rope_workspace}}; }

}  // namespace prun::cpu::PRUN_ISA
