// Describes where the operands of the gated delta rule are, and shares its heads out among threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/named_operands.hpp"
#include "prun/recurrent_state.hpp"
#include "sequence_runs.hpp"

namespace prun::cpu::PRUN_ISA::delta_rule_parts {

using Index = std::int64_t;

template <class T>
using C_of = Compute<T>;

// Describes queries and keys [batch, seq, heads, key], values [batch, seq, heads * values, value], and
// numbers [batch, seq, heads * values] of decays and shares.
struct Rule {
  Index batch, seq, heads, key, values, value;
  Index chunk = 0;                          // positions that are computed together
  const std::int32_t* documents = nullptr;  // [batch, seq]: the first position each one sees; null: 0
  SequenceRuns runs = {};

  Index matrix() const { return key * value; }
  // Counts those of a run.
  Index chunks() const { return (runs.rows + chunk - 1) / chunk; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(key)); }
  Index gate_stride() const { return heads * values; }
  // Returns the first position that a row sees, counted as rows of its run are.
  Index start(Index sample, Index row) const {
    return (documents ? documents[sample * seq + row] : 0) - runs.shift(row);
  }
  // Returns where a value head's decays and shares are, from a row on.
  Index gate(Index sample, Index head, Index of, Index position) const {
    return ((sample * seq + position) * heads + head) * values + of;
  }
  template <class T>
  Matrix<T> rows(T* data, Index sample, Index head, Index first, Index count) const {
    return row_major(data + ((sample * seq + first) * heads + head) * key, count, key, heads * key);
  }
  template <class T>
  Matrix<T> value_rows(T* data, Index sample, Index head, Index of, Index first, Index count) const {
    return row_major(data + (((sample * seq + first) * heads + head) * values + of) * value, count, value,
                     heads * values * value);
  }
  DeltaState state() const { return {key, values, value}; }
};

inline Index extent(const Tensor& x, int d) { return x.dim[d]; }
inline Index extent(const OperandShape& x, int d) { return x.dims[d].extent; }

// Returns the rule of queries q and values v; there may be several dimensions of heads.
template <class Operand>
Rule rule_of(const Operand& q, const Operand& v) {
  const int last = q.rank - 1;
  const Index values = extent(v, last - 1) / extent(q, last - 1);
  Rule rule{extent(q, 0), extent(q, 1), 1, extent(q, last), values, extent(v, last)};
  for (int d = 2; d < last; ++d) rule.heads *= extent(q, d);
  return rule;
}
// Adds how positions come in chunks, and which documents they are of.
template <class Operand>
Rule rule_in_chunks(const Operand& q, const Operand& v, Index chunk, const std::int32_t* documents) {
  Rule rule = rule_of(q, v);
  rule.chunk = std::min(chunk, rule.seq);
  rule.documents = documents;
  rule.runs = SequenceRuns::whole(rule.seq);
  return rule;
}
// Does so for runs of `rows` positions.
template <class Operand>
Rule rule_in_runs(const Operand& q, const Operand& v, Index chunk, Index rows,
                  const std::int32_t* documents) {
  Rule rule = rule_in_chunks(q, v, std::min(chunk, rows), documents);
  rule.runs.rows = rows;
  return rule;
}

// Says whether some operands have one type, that of values, and others that of its statistics.
template <class Op>
bool types_fit(const ShapeOf<Op>& s, OperandsOf<Op> values, OperandsOf<Op> statistics) {
  if (!same_type(s, values)) return false;
  for (const OperandOf<Op> name : statistics)
    if (s[name].dtype != OpShape::statistics(s[*values.begin()].dtype)) return false;
  return true;
}

// Says how much room a thread's buffers need.
struct RuleSizes {
  Index chunk, chunks, key, values, value, gemm;

  static RuleSizes of(const Rule& rule, Index compute_size) {
    Index gemm = 0;
    for (const Index rows : {rule.chunk, rule.runs.rows % rule.chunk})
      for (const Index width : {rule.key, rule.value})
        for (const Index other : {rule.key, rule.value, rows}) {
          gemm = std::max(gemm, gemm_workspace(1, rows, width, other, compute_size));
          gemm = std::max(gemm, gemm_workspace(1, width, other, rows, compute_size));
          gemm = std::max(gemm, gemm_workspace(1, rows, other, width, compute_size));
        }
    return {rule.chunk, rule.chunks(), rule.key, rule.values, rule.value, gemm};
  }
  Index matrix() const { return key * value; }
};

template <class Buffers>
Index share_bytes(const Rule& rule, Index compute_size) {
  Scratch scratch;
  const Buffers counted(scratch, RuleSizes::of(rule, compute_size));
  return scratch.bytes();
}

// Calls body(sample, head, buffers) for each key head of each sample, each on one thread.
template <class Buffers, class Body>
void for_heads(const Rule& rule, Index compute_size, const KernelArgs& args, const KernelContext& context,
               const Body& body) {
  const RuleSizes sizes = RuleSizes::of(rule, compute_size);
  const Index bytes = share_bytes<Buffers>(rule, compute_size), all = rule.batch * rule.heads,
              threads = std::min<Index>(context.workers->count, all);
  parallel(*context.workers, threads, [&](Index thread) {
    Scratch scratch(static_cast<std::byte*>(args.workspace) + thread * bytes);
    const Buffers buffers(scratch, sizes);
    for (Index i = thread; i < all; i += threads) body(i / rule.heads, i % rule.heads, buffers);
  });
}

// Copies rows that lie one after the other to where they belong, rounded to their type.
template <class T>
void store_rows(Matrix<T> to, const Compute<T>* from) {
  for (Index r = 0; r < to.rows; ++r)
    for (Index d = 0; d < to.cols; ++d) store(to.data[r * to.row_stride + d], from[r * to.cols + d]);
}
template <class T>
void load_rows(Matrix<const T> from, Compute<T>* to) {
  for (Index r = 0; r < from.rows; ++r)
    for (Index d = 0; d < from.cols; ++d) to[r * from.cols + d] = load(from.data[r * from.row_stride + d]);
}

}  // namespace prun::cpu::PRUN_ISA::delta_rule_parts
