// Declares experts and its gradients (kernels/experts/experts.hpp): rows in the order of their experts, whose
// offsets stay on the device, products of each expert's rows with its weights, and sums by position in the
// order of its choices.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct ExpertsShape {
  std::int64_t positions, choices, experts, first_expert, hidden, ffn;

  // Returns the most rows that there can be: every choice may be of an expert that this rank has.
  std::int64_t rows() const { return positions * choices; }
};

// Returns bytes, with `gradients` those of a gradient; `kept` says that the activations' operands lie
// elsewhere.
std::int64_t experts_workspace(const ExpertsShape& shape, std::int64_t size_of_value, bool gradients,
                               bool kept);

template <class T>
struct ExpertsInputs {
  const T* x;
  const std::int32_t* index;
  const Compute<T>* weight;
  const T *up, *down;
  // Has the activations' operands, in the order of rows: forward writes them, backward reads them. Where it
  // is null, forward keeps them to itself, and backward computes them again.
  T* kept = nullptr;
  // Experts may have biases in front of their activations, [experts, 2, ffn], with what bounds these
  // (kernels/experts/experts.hpp); null: they have none, and activations are silu(gate) * value.
  // Nothing is kept of them.
  const T* up_bias = nullptr;
  double limit = 0, alpha = 1;
};

template <class T>
void experts(const ExpertsInputs<T>& in, T* y, const ExpertsShape& shape, void* workspace, Stream stream);

// dx and dweight are null together; each of the sums may be null. S is the type of the sums.
template <class T, class S = Compute<T>>
struct ExpertsGradients {
  T* dx = nullptr;
  Compute<T>* dweight = nullptr;
  Sum<S> dup = {}, ddown = {}, dup_bias = {};
};

template <class T, class S>
void experts_grads(const ExpertsInputs<T>& in, const T* dy, const ExpertsGradients<T, S>& out,
                   const ExpertsShape& shape, void* workspace, Stream stream);

}  // namespace prun::cuda
