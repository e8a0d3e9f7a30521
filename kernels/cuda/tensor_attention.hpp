// attention of bf16 on tensor cores, for heads of 64 and of 128 channels: the same values as attention.hpp's
// kernels, but weights are rounded to bf16 before they are multiplied, as cuDNN does. Sums have a fixed
// order, no workspace is needed, and a call is one kernel, which CUDA graphs may hold.
#pragma once

#include "cuda/attention.hpp"
#include "cuda/attention_bias.hpp"

namespace prun::cuda {

// How a call is cut into blocks and warps. Each gives bits of its own.
enum class AttentionForm {
  few,  // blocks of few rows, whose warps share the keys: for calls that leave multiprocessors idle
  many  // blocks of more rows
};

// Whether these kernels take such a call: its width, and that all rows begin at multiples of 16 bytes.
bool tensor_attention_takes(const AttentionForward<bf16>& call);
bool tensor_attention_takes(const AttentionBackward<bf16>& call);

// The form that suits the shape on the current device.
AttentionForm attention_form(const AttentionShape& shape);

// With biases: scores are scaled by them and not by the root of the width, and each has its own added.
void tensor_attention(const AttentionForward<bf16>& call, AttentionForm form, Stream stream,
                      const Biases<float>& biases = {});
// Needs no workspace. With biases the parts of the table's gradient are written, of tiles of queries as many
// as tensor_attention_tiles says.
void tensor_attention_backward(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream,
                               const Biases<float>& biases = {}, const TableParts& table = {});
std::int64_t tensor_attention_tiles(const AttentionShape& shape, AttentionForm form);

}  // namespace prun::cuda
