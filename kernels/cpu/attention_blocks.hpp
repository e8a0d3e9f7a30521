// Describes where attention's operands are, and how its work is cut into blocks and shared out among threads.
//
// Every sum runs over blocks of fixed places in a fixed order, so that no bit depends on which thread
// computes what, nor on which of backward's two schedules runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/scratch.hpp"
#include "prun/op.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cpu::PRUN_ISA::attention_blocks {

using Index = std::int64_t;

// A block of scores, 64 KiB in float, stays in the L2 cache.
inline constexpr Index query_block = 64;
inline constexpr Index key_block = 256;

inline Index blocks_of(Index n, Index block) { return (n + block - 1) / block; }

// Is a range of positions of the sequence.
struct Range {
  Index first, count;
};

// Describes operands. A group is one (batch, head); a unit is one query slot of a group. Queries may be of
// some positions alone, which go up from row to row, and so may keys. Ranges of keys are of positions.
struct Layout {
  Index batch, seq, heads, queries, width;
  bool causal;
  Index window = 0;                         // limits how many keys a position sees; 0: all
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first key each query sees; null: 0
  Index keys = seq;                         // counts positions that have a key and a value
  Index first = 0;                          // the place of the first query
  SequenceOrder order = {};                 // says which position lies there
  bool across = false;                      // says that a block of queries may see any number of keys
  Index base = 0;                           // the position of the first key; no query sees one below 0
  // Counts the rows of a sample, of which these may be some: of queries and of keys. 0: these are all.
  Index query_rows = 0, key_rows = 0;

  Index groups() const { return batch * heads; }
  Index units() const { return groups() * queries; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(width)); }
  Index rows_of_queries() const { return query_rows > 0 ? query_rows : seq; }
  Index rows_of_keys() const { return key_rows > 0 ? key_rows : keys; }

  // Returns the end of the keys that a query in [row, row + rows) sees.
  Index keys_end(Index row, Index rows) const { return causal ? position(row + rows - 1) + 1 : keys; }
  // Returns the first block of keys of which queries from `row` on see something. Blocks lie at the same
  // positions wherever the keys begin, so the first one may be there in part.
  Index keys_begin(Index group, Index row) const { return start_of(group, row) / key_block * key_block; }
  // Returns the keys before `end` that are there of the block that begins at `key`.
  Range keys_at(Index key, Index end) const {
    const Index begin = std::max(key, base);
    return {begin, std::min(key + key_block, end) - begin};
  }
  // Returns which rows of keys and values these positions have.
  Range rows_at(Range positions) const { return {positions.first - base, positions.count}; }
  // Returns the first block of queries of which one sees key `key`.
  Index queries_begin(Index key) const {
    Index row = 0;
    while (row + query_block < seq && keys_end(row, query_block) <= key) row += query_block;
    return row;
  }
  // Returns which of the keys [key, key + count) query `row` sees, counted from the first of them.
  Range visible(Index group, Index row, Index key, Index count) const {
    const Index end = causal ? std::clamp<Index>(position(row) + 1 - key, 0, count) : count;
    const Index begin = std::clamp<Index>(start_of(group, row) - key, 0, end);
    return {begin, end - begin};
  }

  // Returns the first key that a query sees: it never falls along the sequence.
  Index start_of(Index group, Index row) const {
    const Index near = window > 0 ? std::max<Index>(position(row) + 1 - window, 0) : 0;
    return documents ? std::max<Index>(near, documents[group / heads * rows_of_queries() + row]) : near;
  }

 private:
  Index position(Index row) const { return order.position(first + row); }
};

// Makes the layout from queries [batch, seq, heads, queries, head_dim], and the op's attributes.
inline Layout layout_of(const Tensor& q, const Attr* attrs) {
  return {q.dim[0], q.dim[1], q.dim[2], q.dim[3], q.dim[4], attrs[0].i != 0, attrs[1].i};
}

inline Layout layout_of(const OperandShape& q, const Attr* attrs) {
  return {q.dims[0].extent, q.dims[1].extent, q.dims[2].extent, q.dims[3].extent,
          q.dims[4].extent, attrs[0].i != 0,  attrs[1].i};
}

// Returns the same layout with documents kept apart, where the operand is there.
inline Layout with_documents(Layout l, const Tensor& documents) {
  l.documents = documents.as<const std::int32_t>();
  return l;
}

// Returns how many chunks of queries there are in an op whose keys begin ahead of each; 1 where they do not.
inline Index chunks_of(Index queries, Index keys, const Attr* attrs) {
  const Index ahead = attrs[4].i;
  return ahead > 0 ? (keys - queries) / ahead : 1;
}

// Makes the layout of queries of some positions, or of the first chunk of them, beside their keys: they are
// operands q and q + 1 of a call or a shape.
inline Layout across_layout_of(Layout queries, Index keys, const Attr* attrs) {
  const Index chunks = chunks_of(queries.seq, keys, attrs);
  queries.query_rows = queries.seq;
  queries.key_rows = keys;
  queries.seq /= chunks;
  queries.keys = keys / chunks;
  queries.window = attrs[1].i;
  queries.order = {attrs[2].i, attrs[3].i};
  queries.across = true;
  return queries;
}

inline Layout across_layout_of(const OpShape& s, int q) {
  return across_layout_of(layout_of(s.operand[q], s.attrs), s.operand[q + 1].dims[1].extent, s.attrs);
}

// Makes that of one chunk of a call.
inline Layout across_layout_of(const KernelArgs& args, int q, Index chunk) {
  const Tensor* o = args.operands;
  Layout l = across_layout_of(layout_of(o[q], args.attrs), o[q + 1].dim[1], args.attrs);
  l.first = o[q].start[1] + chunk * l.seq;
  if (const Index ahead = args.attrs[4].i; ahead > 0) l.base = l.order.position(l.first) - ahead;
  return l;
}

// Makes the layout from x [batch, seq, heads, packed, head_dim].
template <class Operand>
Layout packed_layout_of(const Operand& x, const Attr* attrs) {
  Layout l = layout_of(x, attrs);
  l.queries -= 2;
  return l;
}

// Points at rows of width head_dim, the same number for each head group of each position: groups are `stride`
// elements apart, and the group after the last is the first of the next position.
template <class T>
struct Heads {
  T* data;
  Index stride;
  Index seq;  // counts positions of a sample

  // Returns the rows of these positions, of one of a group's slots.
  Matrix<T> rows(const Layout& l, Index group, Index slot, Range range) const {
    const Index row = (group / l.heads * seq + range.first) * l.heads + group % l.heads;
    return row_major(data + row * stride + slot * l.width, range.count, l.width, l.heads * stride);
  }
  Matrix<T> rows(const Layout& l, Index group, Range range) const { return rows(l, group, 0, range); }
};

// Points at queries, keys and values, wherever they are.
template <class T>
struct HeadViews {
  Heads<T> q, k, v;
};

// These point at the rows of a chunk.
template <class T>
Heads<T> queries_at(const Layout& l, T* data, Index chunk = 0) {
  const Index stride = l.queries * l.width;
  return {data + chunk * l.seq * l.heads * stride, stride, l.rows_of_queries()};
}

template <class T>
Heads<T> keys_at(const Layout& l, T* data, Index chunk) {
  return {data + chunk * l.keys * l.heads * l.width, l.width, l.rows_of_keys()};
}

template <class T>
HeadViews<T> apart(const Layout& l, T* q, T* k, T* v, Index chunk = 0) {
  return {queries_at(l, q, chunk), keys_at(l, k, chunk), keys_at(l, v, chunk)};
}

// The last two of a group's packed slots are the key and the value.
template <class T>
HeadViews<T> together(const Layout& l, T* x) {
  const Index stride = (l.queries + 2) * l.width;
  T* key = x + l.queries * l.width;
  return {{x, stride, l.seq}, {key, stride, l.seq}, {key + l.width, stride, l.seq}};
}

// Returns the statistics of one unit; they lie [batch, heads, queries, seq].
template <class C>
C* statistics(C* lse, const Layout& l, Index group, Index query) {
  return lse + (group * l.queries + query) * l.rows_of_queries();
}

inline Range block_at(Index first, Index block, Index end) { return {first, std::min(block, end - first)}; }

// Deals items to threads forth and back, since a causal block costs more the later it lies. It calls
// body(thread, item).
template <class Body>
void deal(const Workers& workers, Index items, const Body& body) {
  const Index threads = std::min<Index>(workers.count, items);
  parallel(workers, threads, [&](Index thread) {
    for (Index round = 0; round * threads < items; ++round) {
      const Index item = round * threads + (round % 2 ? threads - 1 - thread : thread);
      if (item < items) body(thread, item);
    }
  });
}

// Returns the workspace of the largest product in use, over all sizes that blocks have: gemm_workspace
// promises nothing for products smaller than the one it was called for.
inline Index products_workspace(const Layout& l, Index compute_size) {
  Index bytes = 0;
  const auto cover = [&](Index m, Index n, Index k) {
    bytes = std::max(bytes, gemm_workspace(1, m, n, k, compute_size));
  };
  const auto cover_block = [&](Index rows, Index keys) {
    cover(rows, keys, l.width);
    cover(rows, l.width, keys);
    cover(keys, l.width, rows);
  };
  for (const Index rows : {query_block, l.seq % query_block}) {
    for (Index keys = 1; l.across && keys <= key_block; ++keys) cover_block(rows, keys);
    for (Index keys = query_block; keys <= key_block; keys += query_block) cover_block(rows, keys);
    cover_block(rows, l.seq % key_block);
  }
  return bytes;
}

// Returns the same where there may be any number of keys.
inline Index products_workspace_at(const Layout& l, Index compute_size) {
  Index bytes = 0;
  for (const Index rows : {std::min(query_block, l.seq), l.seq % query_block})
    for (Index keys = 1; keys <= key_block && rows > 0; ++keys)
      bytes = std::max({bytes, gemm_workspace(1, rows, keys, l.width, compute_size),
                        gemm_workspace(1, rows, l.width, keys, compute_size)});
  return bytes;
}

// Holds the sizes that the buffers of one thread are made for.
struct BufferSizes {
  Index width;
  Index keys;  // counts keys whose gradients a thread holds at a time
  Index gemm;  // bytes
};

// Gives every thread buffers of its own, one thread's after the other's in the workspace.
template <class Buffers>
class Shares {
 public:
  explicit Shares(const BufferSizes& sizes) : sizes_(sizes) {
    Scratch scratch;
    const Buffers counted(scratch, sizes_);
    bytes_ = scratch.bytes();
  }
  Index bytes() const { return bytes_; }
  Buffers of(Index thread, void* workspace) const {
    Scratch scratch(static_cast<std::byte*>(workspace) + thread * bytes_);
    return Buffers(scratch, sizes_);
  }

 private:
  BufferSizes sizes_;
  Index bytes_;
};

// Calls body(layout, chunk) for each chunk of queries that has keys of its own; q is the queries' operand.
template <class Body>
void for_chunks(const KernelArgs& args, int q, int documents, const Body& body) {
  const Tensor* o = args.operands;
  const Index chunks = chunks_of(o[q].dim[1], o[q + 1].dim[1], args.attrs);
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    Layout l = with_documents(across_layout_of(args, q, chunk), o[documents]);
    if (l.documents) l.documents += chunk * l.seq;
    body(l, chunk);
  }
}

// The operands `values` have one type, and `lse` that of its statistics.
inline bool types_fit(const OpShape& shape, std::initializer_list<int> values, int lse) {
  return same_type(shape, values) &&
         shape.operand[lse].dtype == OpShape::statistics(shape.operand[*values.begin()].dtype);
}

}  // namespace prun::cpu::PRUN_ISA::attention_blocks
