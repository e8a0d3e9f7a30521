// Declares attention of bf16 on tensor cores, for heads of 64 and of 128 channels: the values are those of
// attention.hpp's kernels, but weights are rounded to bf16 before they are multiplied, as cuDNN does. Sums
// have a fixed order, no workspace is needed, and a call is one kernel, which CUDA graphs may hold.
#pragma once

#include "attention/cuda.hpp"
#include "attention/cuda_bias.hpp"

namespace prun::cuda {

// Says how a call is cut into blocks and warps. Each form gives bits of its own.
enum class AttentionForm {
  few,  // has blocks of few rows, whose warps share the keys: for calls that leave multiprocessors idle
  many  // has blocks of more rows
};

// Says whether these kernels take such a call, by its width and by rows that begin at multiples of 16 bytes.
bool tensor_attention_takes(const AttentionForward<bf16>& call);
bool tensor_attention_takes(const AttentionBackward<bf16>& call);

// Returns the form that suits the shape on the current device.
AttentionForm attention_form(const AttentionShape& shape);

// With biases, scores are scaled by biases.scale and not by the root of the width, and each has its bias
// added.
void tensor_attention(const AttentionForward<bf16>& call, AttentionForm form, Stream stream,
                      const Biases<float>& biases = {});
// Needs no workspace. With biases the parts of the table's gradient are written, for as many tiles of queries
// as tensor_attention_tiles says.
void tensor_attention_backward(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream,
                               const Biases<float>& biases = {}, const TableParts& table = {});
std::int64_t tensor_attention_tiles(const AttentionShape& shape, AttentionForm form);

}  // namespace prun::cuda
