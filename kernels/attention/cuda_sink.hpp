// Declares how sinks take their share of attention's weights, once its kernels have computed it without them,
// and attention_sink_grad. Attention's own gradient reads the results and is as it is.
#pragma once

#include "attention/cuda.hpp"

namespace prun::cuda {

// Lets each head's sink [heads, queries] shrink the rows of y and grow their lse, which is [batch, heads,
// queries, seq].
template <class T>
void take_shares(const AttentionShape& shape, const Heads<T>& y, Compute<T>* lse, const T* sinks,
                 Stream stream);

// Computes dsinks [heads, queries] of dy and y, which are dense; every sum adds its rows in a fixed order.
template <class T>
void attention_sink_grad(const AttentionShape& shape, const T* dy, const T* y, const Compute<T>* lse,
                         const T* sinks, T* dsinks, Stream stream);

}  // namespace prun::cuda
