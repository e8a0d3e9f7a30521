// Declares attention_biased and its gradient: softmax(scale q k^T + bias) v, where the bias depends on the
// head and on how far a key lies from its query, in buckets of distances (prun/relative_buckets.hpp), as in
// T5. Operands are those of attention.hpp, and as there the general kernels take every type and length and
// widths up to 256. The table's gradient is summed by tile, then by bucket over all tiles, in a fixed order
// and without atomics.
#pragma once

#include "attention/cuda.hpp"
#include "attention/cuda_bias.hpp"
#include "attention/cuda_tensor.hpp"
#include "prun/relative_buckets.hpp"

namespace prun::cuda {

// Returns bounds for distances within a sequence. Throws where there are too many buckets.
BucketBounds bounds_of(const RelativeBuckets& buckets, std::int64_t seq);

template <class T>
struct DistanceBias {
  const T* table;  // [heads, buckets]
  BucketBounds bounds;
  double scale;  // multiplies the products
};

template <class T>
struct BiasedForward {
  AttentionForward<T> attention;
  DistanceBias<T> bias;
  std::optional<AttentionForm> form;  // of the kernels on tensor cores (tensor_form); none: the general ones
};
template <class T>
struct BiasedBackward {
  AttentionBackward<T> attention;
  DistanceBias<T> bias;
  T* dtable;  // [heads, buckets]
  std::optional<AttentionForm> form;
};

// Both need a workspace, aligned to 256.
template <class T>
std::int64_t attention_biased_workspace(const AttentionShape& shape);
template <class T>
void attention_biased(const BiasedForward<T>& call, Stream stream);

template <class T>
std::int64_t attention_biased_backward_workspace(const AttentionShape& shape, std::int64_t buckets);
template <class T>
void attention_biased_backward(const BiasedBackward<T>& call, Stream stream);

}  // namespace prun::cuda
