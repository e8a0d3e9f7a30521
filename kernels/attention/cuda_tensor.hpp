// Declares attention of bf16 and of fp16 on tensor cores, for heads of 64 and of 128 channels: the values are
// those of attention.hpp's kernels, but weights and, backward, gradients of scores are rounded to that type
// before they are multiplied, as cuDNN does. Sums have a fixed order, no workspace is needed, and a call is
// one kernel, which CUDA graphs may hold.
#pragma once

#include <optional>

#include "attention/cuda.hpp"
#include "attention/cuda_bias.hpp"

namespace prun::cuda {

// Says how a call is cut into blocks and warps. Each form gives bits of its own.
enum class AttentionForm {
  few,  // has blocks of few rows, whose warps share the keys: for calls that leave multiprocessors idle
  many  // has blocks of more rows
};

// Says whether these kernels take such a call: by its type, by its width, by rows that begin at multiples of
// 16 bytes, and where scores are not bounded and no weight is dropped. Where keys are of other positions than
// queries, they take calls without a mask, and windows whose keys end with the last query's own.
template <class T>
bool tensor_attention_takes(const AttentionForward<T>& call);
template <class T>
bool tensor_attention_takes(const AttentionBackward<T>& call);

// Returns the form that suits the shape on the current device.
AttentionForm attention_form(const AttentionShape& shape);

// Returns the form in which these kernels are to run a call on the current device; none: it is left to the
// general kernels.
template <class Call>
std::optional<AttentionForm> tensor_form(const Call& call) {
  if (!tensor_attention_takes(call)) return {};
  return attention_form(call.shape);
}

// With biases, scores are scaled by biases.scale and not by the root of the width, and each has its bias
// added.
template <class T>
void tensor_attention(const AttentionForward<T>& call, AttentionForm form, Stream stream,
                      const Biases<float>& biases = {});
// Needs no workspace. With biases the parts of the table's gradient are written, for as many tiles of queries
// as tensor_attention_tiles says.
template <class T>
void tensor_attention_backward(const AttentionBackward<T>& call, AttentionForm form, Stream stream,
                               const Biases<float>& biases = {}, const TableParts& table = {});
std::int64_t tensor_attention_tiles(const AttentionShape& shape, AttentionForm form);

}  // namespace prun::cuda
