// Rules see queries, keys and values in two forms. Together they are x[batch, seq, heads, packed, head_dim],
// as one projection writes them, where the `packed` slots of a head group are its queries, one key and one
// value. Apart they are q[batch, seq, heads, queries, head_dim] and k, v[batch, seq, heads, head_dim]. Plain
// multi-head attention has one query a group. Sharding `heads` shards all of them alike.
#pragma once

#include <algorithm>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// Returns the queries of operand x, whose packed, queries and head_dim must be whole.
inline OperandShape queries_of(OpShape& s, const char* op, int x) {
  OperandShape q = s.operand[x];
  require(q.rank == 5 && q.dims[3].name == Name("packed") && q.dims[3].extent >= 3, op,
          " takes [batch, seq, heads, packed, head_dim] with packed = queries + 2");
  q.dims[3] = {"queries", q.dims[3].extent - 2};
  s.whole(x, 3, 5);
  s.whole(q.dims[3].name);
  return q;
}

// Sets operands q, q + 1 and q + 2 from operand x.
inline void set_apart(OpShape& s, const char* op, int x, int q) {
  const OperandShape from = queries_of(s, op, x);
  const Dim key[] = {from.dims[0], from.dims[1], from.dims[2], from.dims[4]};
  s.operand[q] = from;
  s.output(q + 1, from.dtype, key, 4);
  s.output(q + 2, from.dtype, key, 4);
}

// Does the same from operands x, the queries of all groups, and x + 1, their keys and values: with the packed
// dimension in two, of which one may be split.
inline void set_apart_of_two(OpShape& s, const char* op, int x, int q) {
  const OperandShape &first = s.operand[x], &last = s.operand[x + 1];
  OperandShape keys = first;
  if (keys.rank == 5) keys.dims[3] = {"packed", 2};
  require(first.rank == 5 && first.dims[3].name == Name("queries") && last.rank == 5 &&
              std::equal(keys.dims, keys.dims + 5, last.dims),
          op,
          " takes [batch, seq, heads, queries, head_dim] and [batch, seq, heads, packed, head_dim] with "
          "packed = 2");
  const Dim key[] = {first.dims[0], first.dims[1], first.dims[2], first.dims[4]};
  s.whole(x + 1, 3, 5);
  s.operand[q] = first;
  s.output(q + 1, first.dtype, key, 4);
  s.output(q + 2, first.dtype, key, 4);
}

inline void check_apart(const OpShape& s, const char* op, int q) {
  const OperandShape& queries = s.operand[q];
  bool alike = queries.rank == 5;
  for (int i = q + 1; i <= q + 2; ++i) {
    alike = alike && s.operand[i].rank == 4;
    for (int d = 0; alike && d < 4; ++d) alike = s.operand[i].dims[d] == queries.dims[d == 3 ? 4 : d];
  }
  require(alike, op,
          " takes queries [batch, seq, heads, queries, head_dim], and keys and values without `queries`");
}

// Sets operand x from operands q, q + 1 and q + 2.
inline void set_together(OpShape& s, const char* op, int q, int x) {
  check_apart(s, op, q);
  const OperandShape& from = s.operand[q];
  const Dim packed[] = {
      from.dims[0], from.dims[1], from.dims[2], {"packed", from.dims[3].extent + 2}, from.dims[4]};
  s.whole(q, 3, 5);
  s.output(x, from.dtype, packed, 5);
  s.whole(packed[3].name);
}

// Sets operands x and x + 1 from operands q, q + 1 and q + 2.
inline void set_two_together(OpShape& s, const char* op, int q, int x) {
  check_apart(s, op, q);
  const OperandShape from = s.operand[q];
  const Dim keys[] = {from.dims[0], from.dims[1], from.dims[2], {"packed", 2}, from.dims[4]};
  s.operand[x] = from;
  s.output(x + 1, from.dtype, keys, 5);
  s.whole(x + 1, 3, 5);
}

}  // namespace prun
