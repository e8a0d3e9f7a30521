// Rules see queries, keys and values in two forms. Together they are x[batch, seq, heads, packed, head_dim],
// as one projection writes them, where the `packed` slots of a head group are its queries, one key and one
// value. Apart they are q[batch, seq, heads, queries, head_dim] and k, v[batch, seq, heads, head_dim]. Plain
// multi-head attention has one query a group. Sharding `heads` shards all of them alike.
#pragma once

#include <algorithm>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {

// Says which operands are queries, keys and values, or stand for these.
struct Apart {
  int q, k, v;
  constexpr Apart(int queries, int keys, int values) : q(queries), k(keys), v(values) {}
  constexpr Apart(int first) : Apart(first, first + 1, first + 2) {}
};

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

// Sets what is apart from operand x.
inline void set_apart(OpShape& s, const char* op, int x, Apart to) {
  const OperandShape from = queries_of(s, op, x);
  const Dim key[] = {from.dims[0], from.dims[1], from.dims[2], from.dims[4]};
  s.operand[to.q] = from;
  s.output(to.k, from.dtype, key, 4);
  s.output(to.v, from.dtype, key, 4);
}

// Does the same from two operands, the queries of all groups and their keys and values: with the packed
// dimension in two, of which one may be split.
inline void set_apart_of_two(OpShape& s, const char* op, int x_first, int x_last, Apart to) {
  const OperandShape &first = s.operand[x_first], &last = s.operand[x_last];
  OperandShape keys = first;
  if (keys.rank == 5) keys.dims[3] = {"packed", 2};
  require(first.rank == 5 && first.dims[3].name == Name("queries") && last.rank == 5 &&
              std::equal(keys.dims, keys.dims + 5, last.dims),
          op,
          " takes [batch, seq, heads, queries, head_dim] and [batch, seq, heads, packed, head_dim] with "
          "packed = 2");
  const Dim key[] = {first.dims[0], first.dims[1], first.dims[2], first.dims[4]};
  s.whole(x_last, 3, 5);
  s.operand[to.q] = first;
  s.output(to.k, first.dtype, key, 4);
  s.output(to.v, first.dtype, key, 4);
}

inline void check_apart(const OpShape& s, const char* op, Apart of) {
  const OperandShape& queries = s.operand[of.q];
  bool alike = queries.rank == 5;
  for (const int i : {of.k, of.v}) {
    alike = alike && s.operand[i].rank == 4;
    for (int d = 0; alike && d < 4; ++d) alike = s.operand[i].dims[d] == queries.dims[d == 3 ? 4 : d];
  }
  require(alike, op,
          " takes queries [batch, seq, heads, queries, head_dim], and keys and values without `queries`");
}

// Sets operand x from what is apart.
inline void set_together(OpShape& s, const char* op, Apart of, int x) {
  check_apart(s, op, of);
  const OperandShape& from = s.operand[of.q];
  const Dim packed[] = {
      from.dims[0], from.dims[1], from.dims[2], {"packed", from.dims[3].extent + 2}, from.dims[4]};
  s.whole(of.q, 3, 5);
  s.output(x, from.dtype, packed, 5);
  s.whole(packed[3].name);
}

// Sets two operands from what is apart.
inline void set_two_together(OpShape& s, const char* op, Apart of, int x_first, int x_last) {
  check_apart(s, op, of);
  const OperandShape from = s.operand[of.q];
  const Dim keys[] = {from.dims[0], from.dims[1], from.dims[2], {"packed", 2}, from.dims[4]};
  s.operand[x_first] = from;
  s.output(x_last, from.dtype, keys, 5);
  s.whole(x_last, 3, 5);
}

}  // namespace prun
