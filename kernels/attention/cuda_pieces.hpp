// Cuts attention's calls for cuDNN: into pieces that one graph serves, each of some samples and heads.
#pragma once

#include "attention/cuda_cudnn.hpp"

namespace prun::cuda {

struct AttentionPieces {
  std::int64_t samples, heads;  // those of one piece
  bool by_group;                // says that each group of queries is a sample of its own; then samples is 1
};

// Returns the stride of all heads of queries, from head to head and within one; 0 where there is no one
// stride.
std::int64_t query_stride(const AttentionShape& shape, const HeadStrides& strides);

// Says why this build has no cuDNN at all; it is empty where it has.
std::string cudnn_absence();

AttentionPieces cudnn_pieces(const AttentionLayout& layout);
AttentionPieces cudnn_backward_pieces(const AttentionLayout& layout, bool deterministic);

}  // namespace prun::cuda
