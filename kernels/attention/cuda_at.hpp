// Computes causal attention of some positions of each sequence, with the keys and values kept of earlier
// ones. With a window each position sees itself and the window - 1 before it. With a bias, scores are those
// of attention_biased.
#pragma once

#include "attention/cuda_biased.hpp"

namespace prun::cuda {

inline constexpr std::int64_t widest_head_at = 256;

// Shapes are q [batch, seq, heads, queries, head_dim]; k, v [batch, seq, heads, head_dim] of the positions
// from `position` on, which are written behind earlier ones in kept_k, kept_v [batch, kept, heads, head_dim];
// y like q; and the log of each row's sum of exponentials [batch, heads, queries, seq].
template <class T>
struct AttentionAt {
  std::int64_t batch, seq, kept, heads, queries, head_dim;
  const T *q, *k, *v;
  const double* position;  // on the device
  T *kept_k, *kept_v, *y;
  Compute<T>* lse;
  std::int64_t window = 0;  // 0: all keys are seen
  double softcap = 0;       // bounds scores; 0: they stay as they are
};

// Both serve heads of up to widest_head_at channels.
template <class T>
void attention_at(const AttentionAt<T>& call, Stream stream);
// The bias has bounds for all distances within what is kept.
template <class T>
void attention_biased_at(const AttentionAt<T>& call, const DistanceBias<T>& bias, Stream stream);

}  // namespace prun::cuda
