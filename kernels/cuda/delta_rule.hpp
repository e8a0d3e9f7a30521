// Declares the gated delta rule, its gradient, and the rule of some positions at a time.
#pragma once

#include "cuda/launch.hpp"
#include "prun/recurrent_state.hpp"

namespace prun::cuda {

// Describes queries and keys [batch, seq, heads, key], values [batch, seq, heads * values, value], and decays
// and shares [batch, seq, heads * values], as kernels/cpu does.
struct DeltaRuleSizes {
  std::int64_t batch, seq, heads, key, values, value;
  std::int64_t chunk;                       // positions that are computed together
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first position each one sees; null: 0

  constexpr std::int64_t chunks() const { return (seq + chunk - 1) / chunk; }
  constexpr DeltaState state() const { return {key, values, value}; }
};

template <class T>
struct DeltaRuleForward {
  DeltaRuleSizes sizes;
  const T *q, *k, *v;
  const Compute<T>*g, *beta;
  T* y;
  Compute<T>* state;
  void* workspace;
};

template <class T>
struct DeltaRuleBackward {
  DeltaRuleSizes sizes;
  const T *dy, *q, *k, *v;
  const Compute<T>*g, *beta;
  T *dq, *dk, *dv;
  Compute<T>*dg, *dbeta;
  void* workspace;
};

template <class T>
struct DeltaRuleAt {
  DeltaRuleSizes sizes;
  const T *q, *k, *v;
  const Compute<T>*g, *beta;
  const double* position;
  Compute<T>* kept;
  T* y;
  Compute<T>* state;
};

// Return the bytes of workspace.
template <class T>
std::int64_t delta_rule_workspace(const DeltaRuleSizes& sizes);
template <class T>
std::int64_t delta_rule_backward_workspace(const DeltaRuleSizes& sizes);

template <class T>
void delta_rule(const DeltaRuleForward<T>& call, Stream stream);
template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& call, Stream stream);
template <class T>
void delta_rule_at(const DeltaRuleAt<T>& call, Stream stream);

}  // namespace prun::cuda
