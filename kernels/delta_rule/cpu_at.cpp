// Implements delta_rule_at, position by position: the state that is kept is the one in front of the call
// before, with what that call was given. As many of its positions count as lie before this call's first one.
#include <algorithm>
#include <limits>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"
#include "delta_rule/cpu.hpp"
#include "prun/ops/delta_rule.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using namespace delta_rule_parts;

// Names what the state learns in a position.
template <class C>
struct Lesson {
  const C *key, *value;
  C decay, share;
};

// Moves a state [key, width] on by a position; `wanted` has room for a value.
template <class C>
void learn(const Lesson<C>& lesson, Index keys, Index width, C* __restrict state, C* __restrict wanted) {
  const C kept = exp_of(lesson.decay);
  for (Index k = 0; k < keys; ++k)
#pragma omp simd
    for (Index d = 0; d < width; ++d) state[k * width + d] *= kept;
  std::copy_n(lesson.value, width, wanted);
  for (Index k = 0; k < keys; ++k)
#pragma omp simd
    for (Index d = 0; d < width; ++d) wanted[d] -= lesson.key[k] * state[k * width + d];
  for (Index k = 0; k < keys; ++k) {
    const C by = lesson.share * lesson.key[k];
#pragma omp simd
    for (Index d = 0; d < width; ++d) state[k * width + d] += by * wanted[d];
  }
}

template <class T>
struct At {
  Rule rule;
  const T *q, *k, *v;
  const C_of<T>*g, *beta;
  Index position;
  C_of<T>* kept;
  T* y;
  C_of<T>* state;
};

// Returns the lesson of a value in a recent position.
template <class C>
Lesson<C> recent(const DeltaState& of, const C* kept, Index position, Index value) {
  const C* const at = kept + of.recent(position);
  const C* const own = at + of.of_value(value);
  return {at, own, own[of.value], own[of.value + 1]};
}

// Moves what is kept on to this call's first position. Says whether what is kept reaches it.
template <class C>
bool catch_up(const DeltaState& of, Index position, C* kept, C* wanted) {
  if (position == 0) {
    std::fill_n(kept, of.numbers(), C(0));
    return true;
  }
  const Index passed = position - static_cast<Index>(kept[of.first()]);
  if (passed < 0 || passed > recent_positions) return false;
  for (Index i = 0; i < passed; ++i)
    for (Index value = 0; value < of.values; ++value)
      learn(recent<C>(of, kept, i, value), of.key, of.value, kept + of.matrix(value), wanted);
  return true;
}

// Keeps what the call was given.
template <class T, class C = C_of<T>>
void note(const At<T>& call, Index batch, Index head, C* kept) {
  const Rule& rule = call.rule;
  const DeltaState of = rule.state();
  for (Index i = 0; i < rule.seq; ++i) {
    C* const at = kept + of.recent(i);
    load_rows(rule.rows(call.k, batch, head, i, 1), at);
    for (Index value = 0; value < rule.values; ++value) {
      C* const own = at + of.of_value(value);
      load_rows(rule.value_rows(call.v, batch, head, value, i, 1), own);
      const Index gate = rule.gate(batch, head, value, i);
      own[rule.value] = call.g[gate];
      own[rule.value + 1] = call.beta[gate];
    }
  }
  kept[of.first()] = static_cast<C>(call.position);
}

template <class T, class C = C_of<T>>
void step(const At<T>& call, Index batch, Index head, C* wanted) {
  const Rule& rule = call.rule;
  const DeltaState of = rule.state();
  const Index at = (batch * rule.heads + head) * of.numbers();
  C *const kept = call.kept + at, *const state = call.state + at;
  const bool reached = catch_up(of, call.position, kept, wanted);
  if (!reached) std::fill_n(kept, of.matrix(of.values), std::numeric_limits<C>::quiet_NaN());
  note(call, batch, head, kept);
  std::copy_n(kept, of.numbers(), state);
  for (Index i = 0; i < rule.seq; ++i) {
    const T* const query = rule.rows(call.q, batch, head, i, 1).data;
    for (Index value = 0; value < rule.values; ++value) {
      C* const own = state + of.matrix(value);
      learn(recent<C>(of, kept, i, value), of.key, of.value, own, wanted);
      std::fill_n(wanted, rule.value, C(0));
      for (Index k = 0; k < rule.key; ++k) {
        const C by = static_cast<C>(rule.scale()) * load(query[k]);
#pragma omp simd
        for (Index d = 0; d < rule.value; ++d) wanted[d] += by * own[k * rule.value + d];
      }
      store_rows(rule.value_rows(call.y, batch, head, value, i, 1), wanted);
    }
  }
}

template <class C>
struct AtBuffers {
  C* wanted;
  AtBuffers(Scratch& scratch, const RuleSizes& sizes) : wanted(scratch.take<C>(sizes.value)) {}
};

template <class T>
void delta_rule_at(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const ArgsOf<ops::DeltaRuleAt> op(args);
  const At<T> call{.rule = rule_in_chunks(op["q"], op["v"], op.integer("chunk"), nullptr),
                   .q = op["q"].as<const T>(),
                   .k = op["k"].as<const T>(),
                   .v = op["v"].as<const T>(),
                   .g = op["g"].as<const C>(),
                   .beta = op["beta"].as<const C>(),
                   .position = position_in(op["position"]),
                   .kept = op["kept_state"].as<C>(),
                   .y = op["y"].as<T>(),
                   .state = op["state"].as<C>()};
  for_heads<AtBuffers<C>>(
      call.rule, sizeof(C), args, context,
      [&](Index batch, Index head, const AtBuffers<C>& b) { step(call, batch, head, b.wanted); });
}

Kernel select_at(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleAt> s(shape);
  if (!types_fit(s, {"q", "k", "v", "y"}, {"g", "beta", "kept_state", "state"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return delta_rule_at<T>; });
}

Index at_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::DeltaRuleAt> s(shape);
  const Rule rule = rule_in_chunks(s["q"], s["v"], s.integer("chunk"), nullptr);
  return threads * (s["q"].dtype == DType::f64 ? share_bytes<AtBuffers<double>>(rule, sizeof(double))
                                               : share_bytes<AtBuffers<float>>(rule, sizeof(float)));
}

}  // namespace

std::vector<KernelDef> delta_rule_at_kernels();
std::vector<KernelDef> delta_rule_at_kernels() { return {{ops::DeltaRuleAt::kind, select_at, at_workspace}}; }

}  // namespace prun::cpu::PRUN_ISA
