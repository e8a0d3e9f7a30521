// Declares split_heads and join_heads: they take queries, keys and values out of one packed projection, and
// put them together again.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Packed means x[rows, packed, head_dim], where a row's slots are its queries, one key and one value. Apart
// means q[rows, packed - 2, head_dim] and k, v[rows, head_dim].
struct HeadsShape {
  std::int64_t rows, packed, head_dim;  // `rows` is batch * seq * heads
};

template <class T>
void split_heads(const T* x, T* q, T* k, T* v, const HeadsShape& shape, Stream stream);

template <class T>
void join_heads(const T* q, const T* k, const T* v, T* x, const HeadsShape& shape, Stream stream);

// Does the same with x in two: its queries, and its keys and values [rows, 2, head_dim].
template <class T>
void split_heads_apart(const T* first, const T* last, T* q, T* k, T* v, const HeadsShape& shape,
                       Stream stream);

template <class T>
void join_heads_apart(const T* q, const T* k, const T* v, T* first, T* last, const HeadsShape& shape,
                      Stream stream);

}  // namespace prun::cuda
