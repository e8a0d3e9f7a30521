// Describes where attention's operands are, and how its work is cut into blocks and shared out among threads.
//
// Every sum runs over blocks of fixed places in a fixed order, so that no bit depends on which thread
// computes what, nor on which of backward's two schedules runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/key_names.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/drop_draws.hpp"
#include "cpu/gemm.hpp"
#include "cpu/scratch.hpp"
#include "prun/named_operands.hpp"
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

// Says which softmax weights are dropped, by sample, position and head of queries; none where p is 0.
struct Drops {
  double p = 0;
  const std::int64_t* samples = nullptr;
  double seed = 0;
  std::uint32_t place = 0;  // has the layer, and the stream of the first head that is here
};

// Describes operands. A group is one (batch, head); a unit is one query slot of a group. Queries may be of
// some positions alone, which go up from row to row, and so may keys. Ranges of keys are of positions.
struct Layout {
  Index batch, seq, heads, queries, width;
  bool causal = false;
  Index window = 0;                         // limits how many keys a position sees in a direction; 0: all
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first key each query sees; null: 0
  Index keys = seq;                         // counts positions that have a key and a value
  Index first = 0;                          // the place of the first query
  SequenceOrder order = {};                 // says which position lies there
  bool across = false;                      // says that a block of queries may see any number of keys
  Index base = 0;                           // the position of the first key; no query sees one below 0
  // Counts the rows of a sample, of which these may be some: of queries and of keys. 0: these are all.
  Index query_rows = 0, key_rows = 0;
  double softcap = 0;  // bounds scores; 0: they stay as they are
  Drops drops = {};

  Index groups() const { return batch * heads; }
  Index units() const { return groups() * queries; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(width)); }
  Index rows_of_queries() const { return query_rows > 0 ? query_rows : seq; }
  Index rows_of_keys() const { return key_rows > 0 ? key_rows : keys; }

  // Returns the end of the keys that a query in [row, row + rows) sees.
  Index keys_end(Index row, Index rows) const {
    if (causal) return position(row + rows - 1) + 1;
    return window > 0 ? std::min(keys, blocks_of(position(row + rows - 1) + window, key_block) * key_block)
                      : keys;
  }
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
    const Index behind = causal ? 1 : window;  // how many keys from its own on it sees; 0: all
    const Index end = behind > 0 ? std::clamp<Index>(position(row) + behind - key, 0, count) : count;
    const Index begin = std::clamp<Index>(start_of(group, row) - key, 0, end);
    return {begin, end - begin};
  }

  // Sets what the weights of keys [key, key + count) are multiplied by, of a query whose weights may be
  // dropped; key is a multiple of 4.
  template <class C>
  void set_factors(Index group, Index query, Index row, Range some, C* factors) const {
    const auto unit = static_cast<std::uint32_t>(group % heads * queries + query);
    const DropRow drawn =
        drop_row_at(drops.seed, drops.samples[group / heads], position(row), drops.place + unit);
    const DropChance<C> chance(drops.p);
    alignas(64) std::uint32_t words[key_block + 64];  // some more are drawn than are asked for
    static_assert(8 * philox_lanes <= 64);
    draw_words(drawn, static_cast<std::uint32_t>(some.first / 4), some.count, words);
    for (Index j = 0; j < some.count; ++j) factors[j] = (words[j] >> 8) >= chance.least ? chance.scale : C(0);
  }

  // Returns the first key that a query sees: it never falls along the sequence.
  Index start_of(Index group, Index row) const {
    const Index near = window > 0 ? std::max<Index>(position(row) + 1 - window, 0) : 0;
    return documents ? std::max<Index>(near, documents[group / heads * rows_of_queries() + row]) : near;
  }

 private:
  Index position(Index row) const { return order.position(first + row); }
};

// Makes the layout from queries [batch, seq, heads, queries, head_dim], without a mask.
inline Layout layout_of(const Tensor& q) { return {q.dim[0], q.dim[1], q.dim[2], q.dim[3], q.dim[4]}; }

inline Layout layout_of(const OperandShape& q) {
  return {q.dims[0].extent, q.dims[1].extent, q.dims[2].extent, q.dims[3].extent, q.dims[4].extent};
}

// Returns the same layout with the mask that an op's attributes state, and what bounds its scores. `op` is
// the ArgsOf of a launch or the ShapeOf of what chooses a kernel, as below.
template <class Named>
Layout with_mask(Layout l, const Named& op) {
  l.causal = op.integer("causal") != 0;
  l.window = op.integer("window");
  l.softcap = op.real("softcap");
  return l;
}

// Makes the layout from queries q.
template <class Named>
Layout apart_layout_of(const Named& op) {
  return with_mask(layout_of(op["q"]), op);
}

// Returns the same layout with documents kept apart, where the operand is there.
inline Layout with_documents(Layout l, const Tensor& documents) {
  l.documents = documents.as<const std::int32_t>();
  return l;
}

// Returns the same layout with drops.
template <class Op>
Layout with_drops(Layout l, const ArgsOf<Op>& op) {
  const double p = op.real("p");
  if (p == 0) return l;
  const KernelArgs& args = op;
  const Tensor& queries = op["q"];
  l.drops = {p, op["samples"].template as<const std::int64_t>(), *op["seed"].template as<const double>(),
             static_cast<std::uint32_t>((args.layer << 16) + op.integer("stream") +
                                        queries.start[2] * queries.dim[3])};
  return l;
}

// Returns how many chunks of queries there are in an op whose keys begin ahead of each; 1 where they do not.
inline Index chunks_of(Index queries, Index keys, Index ahead) {
  return ahead > 0 ? (keys - queries) / ahead : 1;
}

// Makes the layout of queries of some positions, or of the first chunk of them, beside so many keys.
template <class Named>
Layout across_layout_of(const Named& op, Index keys) {
  Layout l = apart_layout_of(op);
  const Index chunks = chunks_of(l.seq, keys, op.integer("ahead"));
  l.query_rows = l.seq;
  l.key_rows = keys;
  l.seq /= chunks;
  l.keys = keys / chunks;
  l.order = {op.integer("chunk"), op.integer("chunks")};
  l.across = true;
  return l;
}

template <class Op>
Layout across_layout_of(const ShapeOf<Op>& s) {
  return across_layout_of(s, s["all_k"].dims[1].extent);
}

// Makes that of one chunk of a call.
template <class Op>
Layout chunk_layout_of(const ArgsOf<Op>& op, Index chunk) {
  Layout l = across_layout_of(op, op["all_k"].dim[1]);
  l.first = op["q"].start[1] + chunk * l.seq;
  if (const Index ahead = op.integer("ahead"); ahead > 0) l.base = l.order.position(l.first) - ahead;
  return l;
}

// Makes the layout from x [batch, seq, heads, packed, head_dim].
template <class Named>
Layout packed_layout_of(const Named& op) {
  Layout l = with_mask(layout_of(op["x"]), op);
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
  Index slopes = 0;
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

// Calls body(layout, chunk) for each chunk of queries that has keys of its own.
template <class Op, class Body>
void for_chunks(const ArgsOf<Op>& op, const Body& body) {
  const Index chunks = chunks_of(op["q"].dim[1], op["all_k"].dim[1], op.integer("ahead"));
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    Layout l = with_documents(chunk_layout_of(op, chunk), op["documents"]);
    l = with_drops(l, op);
    if (l.documents) l.documents += chunk * l.seq;
    body(l, chunk);
  }
}

// The operands `values` have one type, and `lse` that of its statistics.
template <class Op>
bool types_fit(const ShapeOf<Op>& s, OperandsOf<Op> values, OperandOf<Op> lse) {
  return same_type(s, values) && s[lse].dtype == OpShape::statistics(s[*values.begin()].dtype);
}

}  // namespace prun::cpu::PRUN_ISA::attention_blocks
