// Computes scores of experts from their logits, a position to a warp; route, its gradient and balance share
// it. A lane that reads what other lanes have written must wait for the block first.
#pragma once

#include "cuda/device.cuh"
#include "cuda/math.cuh"

namespace prun::cuda {

inline constexpr int warp_size = 32;

// Keeps a quotient finite where all chosen scores are 0; it changes no bit of others.
template <class C>
inline constexpr C least_sum = C(1e-20);

// Computes the softmax of a row into `scores`, unless null; returns the logarithm of its sum of exponentials.
template <class C>
__device__ __forceinline__ C softmax_scores(const C* logits, int n, C* scores, int lane) {
  C most = -INFINITY;
  for (int e = lane; e < n; e += warp_size) most = Larger()(most, logits[e]);
  most = warp_fold(most, Larger());
  C sum = 0;
  for (int e = lane; e < n; e += warp_size) sum += exp_of<C>(logits[e] - most);
  sum = warp_fold(sum, Add());
  if (scores)
    for (int e = lane; e < n; e += warp_size) scores[e] = exp_of<C>(logits[e] - most) / sum;
  return most + log(sum);
}

template <class C>
__device__ __forceinline__ void sigmoid_scores(const C* logits, int n, C* scores, int lane) {
  for (int e = lane; e < n; e += warp_size) scores[e] = sigmoid<C>(logits[e]).value;
}

}  // namespace prun::cuda
