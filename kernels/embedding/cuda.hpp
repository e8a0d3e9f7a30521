// Declares embedding and add_position, together and apart, and the tables' gradients. A token outside the
// table's rows, which begin at `first_row` of the whole vocabulary, belongs to another shard: it gives zeros
// and no gradient.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Computes y[i] = table[tokens[i] - first_row] + positions[i % seq], with a table [rows, width]; `positions`,
// whose first row is that of the first position, may be null. The sum is rounded once.
template <class T>
void embedding(const std::int32_t* tokens, const T* table, const T* positions, T* y, std::int64_t count,
               std::int64_t seq, std::int64_t width, std::int64_t rows, std::int64_t first_row,
               Stream stream);

// Computes y[b, s] = x[b, s] + positions[s], or positions[rows[s]] where `rows` is not null; y may be x.
template <class T>
void add_position(const T* x, const T* positions, const std::int32_t* rows, T* y, std::int64_t batch,
                  std::int64_t seq, std::int64_t width, Stream stream);

// Computes y[b, s] = x[b, s] + positions[*position + s], with the last of `rows` rows behind them; y may be
// x.
template <class T>
void add_position_at(const T* x, const T* positions, const double* position, T* y, std::int64_t batch,
                     std::int64_t seq, std::int64_t width, std::int64_t rows, Stream stream);

// Adds dtable[tokens[i] - first_row] += dy[i]: tokens that share a row are added in an order that only their
// number decides, and their sum is rounded once with the value there. The token `padding` adds nothing.
template <class T, class S>
void embedding_weight_grad(const std::int32_t* tokens, const T* dy, S* dtable, std::int64_t count,
                           std::int64_t width, std::int64_t rows, std::int64_t first_row,
                           std::int64_t padding, void* workspace, Stream stream);
// Returns the bytes of workspace, aligned to 16.
template <class T>
std::int64_t embedding_weight_grad_workspace(std::int64_t count, std::int64_t width);

// Adds to dpositions[s], or dpositions[rows[s]] where `rows` is not null, dy[b, s] of each sample in order.
template <class T, class S>
void position_weight_grad(const T* dy, Sum<S> dpositions, const std::int32_t* rows, std::int64_t batch,
                          std::int64_t seq, std::int64_t width, Stream stream);

}  // namespace prun::cuda
