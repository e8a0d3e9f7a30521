// Declares the gated delta rule, its gradient, the rule of some positions at a time, and what runs of
// positions make of states.
#pragma once

#include "cuda/launch.hpp"
#include "prun/recurrent_state.hpp"
#include "sequence_runs.hpp"

namespace prun::cuda {

// Describes queries and keys [batch, seq, heads, key], values [batch, seq, heads * values, value], and decays
// and shares [batch, seq, heads * values], as kernels/cpu does.
struct DeltaRuleSizes {
  std::int64_t batch, seq, heads, key, values, value;
  std::int64_t chunk;  // positions that are computed together
  SequenceRuns runs;
  std::int64_t all_runs = 0;                // of all ranks; 0: sequences are whole
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first position each one sees; null: 0

  constexpr std::int64_t chunks() const { return (runs.rows + chunk - 1) / chunk; }  // of a run
  constexpr std::int64_t own_runs() const { return seq / runs.rows; }
  constexpr DeltaState state() const { return {key, values, value}; }
};

// With `starts`, [batch, runs, heads * values, key, value], `state` is null.
template <class T>
struct DeltaRuleForward {
  DeltaRuleSizes sizes;
  const T *q, *k, *v;
  const Compute<T>*g, *beta;
  T* y;
  Compute<T>* state;
  void* workspace;
  const Compute<T>* starts = nullptr;
};

template <class T>
struct DeltaRuleBackward {
  DeltaRuleSizes sizes;
  const T *dy, *q, *k, *v;
  const Compute<T>*g, *beta;
  T *dq, *dk, *dv;
  Compute<T>*dg, *dbeta;
  void* workspace;
  const Compute<T>*starts = nullptr, *ends = nullptr;  // of runs
};

// `maps` is [batch, own runs, heads * values, width] of M, E and, with `q` and `dy`, B.
template <class T>
struct DeltaMaps {
  DeltaRuleSizes sizes;
  const T *k, *v;
  const Compute<T>*g, *beta;
  const T *q, *dy;
  Compute<T>* maps;
  std::int64_t width;
  void* workspace;
};

// Describes maps and starts of all runs, of `heads` value heads.
struct DeltaStartsSizes {
  std::int64_t batch, runs, heads, key, value, width;
  bool back;
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
std::int64_t delta_maps_workspace(const DeltaRuleSizes& sizes);

template <class T>
void delta_rule(const DeltaRuleForward<T>& call, Stream stream);
template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& call, Stream stream);
template <class T>
void delta_rule_at(const DeltaRuleAt<T>& call, Stream stream);
template <class T>
void delta_maps(const DeltaMaps<T>& call, Stream stream);
template <class C>
void delta_starts(const DeltaStartsSizes& sizes, const C* maps, C* starts, Stream stream);

}  // namespace prun::cuda
