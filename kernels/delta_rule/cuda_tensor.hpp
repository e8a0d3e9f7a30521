// Declares the gated delta rule of bf16 on tensor cores, for keys and values of 128 channels in chunks of 64
// positions: the values are those of delta_rule.hpp's kernels, but factors of products are rounded to bf16,
// states among them, which are kept in float. Sums have a fixed order.
#pragma once

#include "delta_rule/cuda.hpp"

namespace prun::cuda {

// Says whether these kernels take such sizes. Rows have to begin at multiples of 16 bytes besides.
bool tensor_delta_takes(const DeltaRuleSizes& sizes);

std::int64_t tensor_delta_workspace(const DeltaRuleSizes& sizes);
std::int64_t tensor_delta_backward_workspace(const DeltaRuleSizes& sizes);

// Return false, having done nothing, where rows do not begin so or a GPU has less shared memory than they
// take: 141 KiB a block forward, 220 backward.
bool tensor_delta(const DeltaRuleForward<bf16>& call, Stream stream);
bool tensor_delta_backward(const DeltaRuleBackward<bf16>& call, Stream stream);

}  // namespace prun::cuda
