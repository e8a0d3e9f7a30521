// Cuts attention whose keys begin ahead of each chunk of queries into a call for each chunk.
#pragma once

#include <algorithm>

#include "attention/cuda.hpp"
#include "memory/cuda.hpp"
#include "prun/sequence_order.hpp"

namespace prun::cuda {

// Has a call begin at other rows of queries and of keys.
template <class Call>
void move_rows(Call& call, std::int64_t queries, std::int64_t keys) {
  const AttentionShape& s = call.shape;
  call.q.data += queries * call.q.strides.seq;
  call.y.data += queries * call.y.strides.seq;
  call.k.data += keys * call.k.strides.seq;
  call.v.data += keys * call.v.strides.seq;
  // Row sums lie behind those of the chunks before, which is how forward leaves them to the gradient.
  call.lse += s.batch * s.heads * s.queries * queries;
  if (call.documents) call.documents += queries;
  if constexpr (requires { call.dy; }) {
    call.dy.data += queries * call.dy.strides.seq;
    call.dq.data += queries * call.dq.strides.seq;
    call.dk.data += keys * call.dk.strides.seq;
    call.dv.data += keys * call.dv.strides.seq;
  }
}

// Counts rows of keys that a call leaves out since no query sees them: they lie in front of its keys and
// behind them.
struct UnseenKeys {
  std::int64_t front = 0, behind = 0;
};

// Runs a call of which each rank has the keys of all positions. In order, and with a window, it ends with the
// last query's own.
template <class Call, class Run>
void as_one_chunk(Call call, Run run) {
  AttentionShape& s = call.shape;
  UnseenKeys unseen;
  if (s.across() && s.causal && s.window > 0 && s.chunk == 0) {
    unseen.behind = s.keys - (s.first + s.seq);
    s.keys = s.first + s.seq;
  }
  run(call, unseen);
}

// Calls run(call of a chunk, unseen keys) for each of them: its first key is at position 0 or later.
template <class Call, class Run>
void for_chunks(const Call& call, Run run) {
  const AttentionShape& s = call.shape;
  if (s.ahead == 0) return as_one_chunk(call, run);
  const std::int64_t count = (s.keys - s.seq) / s.ahead, rows = s.seq / count;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t position = SequenceOrder{s.chunk, s.chunks}.position(s.first + j * rows);
    const std::int64_t there = std::min(s.ahead, position), unseen = s.ahead - there;
    Call one = call;
    move_rows(one, j * rows, j * (s.ahead + rows) + unseen);
    one.shape.seq = rows;
    one.shape.keys = there + rows;
    one.shape.first = there;
    one.shape.from = position - there;
    one.shape.places = s.seq;
    one.shape.chunk = one.shape.chunks = one.shape.ahead = 0;
    run(one, UnseenKeys{unseen, 0});
  }
}

// Clears rows of the gradients of keys, from `first` on.
template <class T>
void clear_rows(const AttentionBackward<T>& call, std::int64_t first, std::int64_t count, Stream stream) {
  if (count == 0) return;
  for (const Heads<T>& gradient : {call.dk, call.dv})
    for (std::int64_t sample = 0; sample < call.shape.batch; ++sample)
      zero(gradient.data + sample * gradient.strides.batch + first * gradient.strides.seq,
           count * gradient.strides.seq * static_cast<std::int64_t>(sizeof(T)), stream);
}

template <class T>
void clear_unseen(const AttentionBackward<T>& chunk, const UnseenKeys& keys, Stream stream) {
  clear_rows(chunk, -keys.front, keys.front, stream);
  clear_rows(chunk, chunk.shape.keys, keys.behind, stream);
}

}  // namespace prun::cuda
