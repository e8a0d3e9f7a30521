// Declares attention: softmax(q k^T / sqrt(head_dim)) v, causal or full, and its gradient. Each of `heads`
// heads of keys and values serves `queries` heads of queries. Operands are read and written in place, packed
// by head group or apart (HeadStrides). The kernels here take every type, length and width up to 256, their
// sums have a fixed order; attention_cudnn.hpp has faster ones for bf16.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct AttentionShape {
  std::int64_t batch, seq;
  std::int64_t heads;    // counts heads of keys and values
  std::int64_t queries;  // counts heads of queries for each of them
  std::int64_t head_dim;
  bool causal = true;
  std::int64_t window = 0;  // limits the keys that a query sees in a direction, itself among them; 0: all
  // Queries may be of some positions alone: then `keys` positions have a key; 0 means those that have a
  // query. The other numbers are the first query's place, and which position is at a place
  // (prun/sequence_order.hpp).
  std::int64_t keys = 0;
  std::int64_t first = 0, chunk = 0, chunks = 0;
  // Each chunk of the queries may have keys of its own, from so many positions ahead of it on. Kernels take
  // one chunk (attention_chunks.hpp), whose places count from its first key, at position `from`; `places` is
  // how many a sample has, 0: those of the chunk.
  std::int64_t ahead = 0, from = 0, places = 0;
  double softcap = 0;  // bounds scores; 0: they stay as they are
  double p = 0;        // is how likely a weight is dropped; the kernels here alone drop any

  constexpr bool across() const { return keys > 0; }

  bool operator==(const AttentionShape&) const = default;
  constexpr std::int64_t query_rows() const { return batch * heads * queries * seq; }
};

// Returns the shape of keys and values, as rows of `keys` positions.
constexpr AttentionShape shape_of_keys(AttentionShape s) {
  if (s.across()) s.seq = s.keys;
  return s;
}

// Says where the rows of an operand lie, in elements from its first: the row of sample b, position s, head h
// and query j begins at b * batch + s * seq + h * head + j * head_dim, and is dense.
struct HeadStrides {
  std::int64_t batch, seq, head;

  bool operator==(const HeadStrides&) const = default;
};

// Returns the strides of [batch, seq, heads, slots, head_dim]: slots are the queries, 1 for keys or values
// apart, or queries + 2 where a group's queries, its key and its value lie packed; a packed operand begins at
// its own slot of x.
inline HeadStrides head_strides(const AttentionShape& s, std::int64_t slots) {
  const std::int64_t head = slots * s.head_dim, seq = s.heads * head;
  return {s.seq * seq, seq, head};
}

template <class T>
struct Heads {
  T* data;
  HeadStrides strides;
};

// Says by what it is drawn which weights are dropped, as the CPU's kernels draw it; unused where p is 0.
struct AttentionDraws {
  const std::int64_t* samples = nullptr;  // [batch], on the device
  const double* seed = nullptr;           // on the device
  std::uint32_t place = 0;                // has the layer, and the stream of the first head of queries
};

// The results are y like q, and the log of each row's sum of exponentials.
template <class T>
struct AttentionForward {
  AttentionShape shape;
  Heads<const T> q, k, v;
  Heads<T> y;
  Compute<T>* lse;            // [batch, heads, queries, seq]
  void* workspace = nullptr;  // is not needed here
  // It has the shape [batch, seq] and holds the first key that each position sees, under a causal mask; it
  // never falls along the sequence. Null means the first of all.
  const std::int32_t* documents = nullptr;
  AttentionDraws draws = {};
};

template <class T>
void attention(const AttentionForward<T>& call, Stream stream);

// Reads y and lse as forward wrote them.
template <class T>
struct AttentionBackward {
  AttentionShape shape;
  Heads<const T> dy, q, k, v, y;
  const Compute<T>* lse;
  Heads<T> dq, dk, dv;
  void* workspace;                          // has attention_backward_workspace bytes
  const std::int32_t* documents = nullptr;  // those of forward
  AttentionDraws draws = {};                // those of forward
};

template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape) {
  return shape.query_rows() * static_cast<std::int64_t>(sizeof(Compute<T>));
}

template <class T>
void attention_backward(const AttentionBackward<T>& call, Stream stream);

}  // namespace prun::cuda
