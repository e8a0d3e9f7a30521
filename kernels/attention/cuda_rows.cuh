// Says where the kernels of attention find rows of heads, and which keys a query sees.
#pragma once

#include "attention/cuda.hpp"
#include "cuda/device.cuh"

namespace prun::cuda {

// Points at rows of one head, or of one head of queries.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;
};

// Names a head of queries of a sample. There are fewer than 2^31, which a grid has blocks for.
struct Unit {
  unsigned batch, head, query;

  __device__ Unit(unsigned of_batch, unsigned of_heads, unsigned of_queries)
      : batch(of_batch), head(of_heads), query(of_queries) {}
  __device__ Unit(const AttentionShape& s, std::int64_t index) {
    const auto queries = static_cast<unsigned>(s.queries), heads = static_cast<unsigned>(s.heads);
    const unsigned unit = static_cast<unsigned>(index), group = unit / queries;
    query = unit - group * queries;
    batch = group / heads;
    head = group - batch * heads;
  }
  __device__ std::int64_t statistics(const AttentionShape& s) const {
    return ((batch * s.heads + head) * s.queries + query) * s.seq;
  }
};

template <class T>
__device__ Rows<T> rows_of(const Heads<T>& heads, std::int64_t batch, std::int64_t head,
                           std::int64_t channel = 0) {
  const HeadStrides& s = heads.strides;
  return {heads.data + batch * s.batch + head * s.head + channel, s.seq};
}

template <class T>
__device__ Rows<T> rows_of(const Heads<T>& heads, const Unit& unit, std::int64_t head_dim) {
  return rows_of(heads, unit.batch, unit.head, unit.query * head_dim);
}

template <class C>
__device__ C scale_of(const AttentionShape& shape) {
  return C(1) / sqrt(static_cast<C>(shape.head_dim));
}

// Holds a scaled score as the softmax has it, and its slope by the one that queries and keys give.
template <class C>
struct Score {
  C value, slope;
};

template <class C>
__device__ Score<C> bounded(const AttentionShape& shape, C score) {
  if (shape.softcap == 0) return {score, C(1)};
  const C cap = static_cast<C>(shape.softcap), t = tanh(score / cap);
  return {cap * t, (C(1) - t) * (C(1) + t)};
}

// Returns the documents of a sample.
__device__ inline const std::int32_t* documents_of(const AttentionShape& shape, const std::int32_t* documents,
                                                   std::int64_t batch) {
  return documents + batch * (shape.places > 0 ? shape.places : shape.seq);
}

// Returns the first key that a query in `row` sees, which stands at place `query` among keys.
template <class Call>
__device__ int first_key_at(const Call& call, std::int64_t batch, std::int64_t row, std::int64_t query) {
  const AttentionShape& shape = call.shape;
  const int near = shape.window > 0 && query >= shape.window ? static_cast<int>(query - shape.window) + 1 : 0;
  if (!call.documents) return near;
  return max(near, documents_of(shape, call.documents, batch)[row] - static_cast<int>(shape.from));
}

// Returns the first key that a query of a sample sees. `late` says that some queries do not see the first
// key, since documents are kept apart or there is a window: kernels for which it is false pay nothing for it.
template <bool late, class Call>
__device__ int first_key(const Call& call, std::int64_t batch, std::int64_t query) {
  if constexpr (!late) return 0;
  if (query >= call.shape.seq) return 0;
  return first_key_at(call, batch, query, call.shape.first + query);
}

// Says which of the two kernels takes a call.
template <class Call>
bool begins_late(const Call& call) {
  return call.documents || call.shape.window > 0;
}

// Returns the first key of the tiles in which queries from `first` on see any key.
template <int rows, bool late, class Call>
__device__ std::int64_t keys_begin(const Call& call, std::int64_t batch, std::int64_t first) {
  return first_key<late>(call, batch, first) / rows * rows;
}

// Returns how many keys are in front of the first query's own.
template <bool late>
__device__ int keys_ahead(const AttentionShape& shape) {
  return late ? static_cast<int>(shape.first) : 0;
}

// Says whether the window of a query, and so of all behind it, begins behind a key.
__device__ inline bool is_out_of_reach(const AttentionShape& shape, int query, int key) {
  return shape.window > 0 && query - key >= static_cast<int>(shape.window);
}

// Returns the end of the keys that queries up to `last` see, where all positions have a query.
__device__ inline std::int64_t keys_end(const AttentionShape& shape, std::int64_t last) {
  return shape.causal && last < shape.seq ? last + 1 : shape.seq;
}

// Says whether all rows begin at 16 bytes and end at a chunk.
template <class T, class... H>
bool packs(const AttentionShape& shape, const H&... heads) {
  const auto whole = [](std::int64_t n) { return n % chunk<T> == 0; };
  return whole(shape.head_dim) && aligned({heads.data...}) &&
         (... && (whole(heads.strides.batch) && whole(heads.strides.seq) && whole(heads.strides.head)));
}

}  // namespace prun::cuda
