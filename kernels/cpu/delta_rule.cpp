// Implements the gated delta rule in chunks of positions, and its gradient. A chunk's corrections of the
// state depend on each other: correction i is beta_i (v_i - e^(G_i) k_i S) less what those before it have put
// under its key, where S is the state in front of the chunk and G the decays summed up to each position. That
// is a triangular system, which is solved row by row. Everything is computed in float, or in double for
// double. What a position does not see, such as another document, is masked before exponentials are taken.
#include "cpu/delta_rule.hpp"

#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/vector_math.hpp"
#include "prun/recurrent_state.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using namespace delta_rule_parts;

// ------------------------------------------------------------------ a chunk

template <class C>
struct ChunkBuffers {
  C *keys, *queries;      // [chunk, chunk]: products of keys with keys, of queries with keys, scaled
  C *decay, *below, *at;  // [chunk, chunk]: e^(G_i - G_j), what corrections owe each other, what outputs read
  C *read, *wanted, *corrected, *out;  // [chunk, value]: k S, v - e^G k S, corrections, results
  C *seen, *left, *share;              // [chunk]: e^(G_i), e^(G_last - G_i), beta
  double* sums;                        // [chunk]: G_i
  C* state;                            // [values, key, value]
  void* gemm;

  ChunkBuffers(Scratch& scratch, const RuleSizes& sizes) {
    const Index c = sizes.chunk, square = c * c, wide = c * sizes.value;
    for (C** to : {&keys, &queries, &decay, &below, &at}) *to = scratch.take<C>(square);
    for (C** to : {&read, &wanted, &corrected, &out}) *to = scratch.take<C>(wide);
    for (C** to : {&seen, &left, &share}) *to = scratch.take<C>(c);
    sums = scratch.take<double>(c);
    state = scratch.take<C>(sizes.values * sizes.matrix());
    gemm = scratch.take<std::byte>(sizes.gemm);
  }
};

// Fills decays between positions of a chunk, those to its ends, and the shares. Returns that of the state.
template <class C>
C set_decays(const Rule& rule, const C* g, const C* beta, Index first, Index count, Index batch,
             const ChunkBuffers<C>& b) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) {
    b.sums[i] = sum += static_cast<double>(g[i * rule.gate_stride()]);
    b.share[i] = beta[i * rule.gate_stride()];
  }
  const Index last_start = rule.start(batch, first + count - 1);
  for (Index i = 0; i < count; ++i) {
    const Index start = rule.start(batch, first + i), from = std::max<Index>(start - first, 0);
    b.seen[i] = start < first ? exp_of(static_cast<C>(b.sums[i])) : C(0);
    b.left[i] = first + i >= last_start ? exp_of(static_cast<C>(b.sums[count - 1] - b.sums[i])) : C(0);
    C* __restrict row = b.decay + i * count;
    std::fill_n(row, count, C(0));
#pragma omp simd
    for (Index j = from; j <= i; ++j) row[j] = exp_of(static_cast<C>(b.sums[i] - b.sums[j]));
  }
  return b.seen[count - 1];
}

// Solves (1 + below) x = x in place, of `width` columns.
template <class C>
void solve(const C* below, Index count, Index width, C* x) {
  for (Index i = 1; i < count; ++i) {
    C* __restrict to = x + i * width;
    for (Index j = 0; j < i; ++j) {
      const C by = below[i * count + j];
      const C* __restrict from = x + j * width;
#pragma omp simd
      for (Index d = 0; d < width; ++d) to[d] -= by * from[d];
    }
  }
}

// Solves (1 + below)^T x = x in place.
template <class C>
void solve_transposed(const C* below, Index count, Index width, C* x) {
  for (Index i = count - 2; i >= 0; --i) {
    C* __restrict to = x + i * width;
    for (Index j = i + 1; j < count; ++j) {
      const C by = below[j * count + i];
      const C* __restrict from = x + j * width;
#pragma omp simd
      for (Index d = 0; d < width; ++d) to[d] -= by * from[d];
    }
  }
}

// Names a value head, a chunk of its positions, and what a chunk has of it.
template <class T>
struct ChunkOf {
  const Rule& rule;
  Index batch, head, value, first, count;
  C_of<T>* state;  // in front of the chunk, and behind it afterwards

  Matrix<const T> keys(const T* k) const { return rule.rows(k, batch, head, first, count); }
  Matrix<const T> values(const T* v) const { return rule.value_rows(v, batch, head, value, first, count); }
};

// Computes the corrections of a chunk, and what is left of the state behind it: `carried`.
template <class T, class C = C_of<T>>
C correct(const ChunkOf<T>& chunk, const T* k, const T* v, const C* g, const C* beta,
          const ChunkBuffers<C>& b) {
  const Rule& rule = chunk.rule;
  const Index n = chunk.count, width = rule.value;
  const Index gate = rule.gate(chunk.batch, chunk.head, chunk.value, chunk.first);
  const C carried = set_decays(rule, g + gate, beta + gate, chunk.first, n, chunk.batch, b);
  gemm_serial<T, C, C>(1, chunk.keys(k), row_major<const C>(chunk.state, rule.key, width),
                       row_major(b.read, n, width), false, b.gemm);
  const Matrix<const T> values = chunk.values(v);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j)
      b.below[i * n + j] = j < i ? b.share[i] * b.keys[i * n + j] * b.decay[i * n + j] : C(0);
    const T* __restrict row = values.data + i * values.row_stride;
    C* __restrict wanted = b.wanted + i * width, * __restrict corrected = b.corrected + i * width;
    const C* __restrict read = b.read + i * width, seen = b.seen[i], share = b.share[i];
#pragma omp simd
    for (Index d = 0; d < width; ++d) {
      wanted[d] = load(row[d]) - seen * read[d];
      corrected[d] = share * wanted[d];
    }
  }
  solve(b.below, n, width, b.corrected);
  return carried;
}

// Moves the state behind the chunk. It needs the corrections, and overwrites `read`.
template <class T, class C = C_of<T>>
void move_state(const ChunkOf<T>& chunk, const T* k, C carried, const ChunkBuffers<C>& b) {
  const Index n = chunk.count, width = chunk.rule.value, all = chunk.rule.key * width;
  for (Index i = 0; i < n; ++i) {
    const C by = b.left[i];
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.read[i * width + d] = by * b.corrected[i * width + d];
  }
  C* __restrict state = chunk.state;
#pragma omp simd
  for (Index d = 0; d < all; ++d) state[d] *= carried;
  gemm_serial<T, C, C>(1, chunk.keys(k).transposed(), row_major<const C>(b.read, n, width),
                       row_major(state, chunk.rule.key, width), true, b.gemm);
}

template <class T, class C = C_of<T>>
void multiply_keys(Matrix<const T> keys, const ChunkBuffers<C>& b) {
  gemm_serial<T, T, C>(1, keys, keys.transposed(), row_major(b.keys, keys.rows, keys.rows), false, b.gemm);
}

template <class T, class C = C_of<T>>
void multiply_queries(const Rule& rule, Matrix<const T> queries, Matrix<const T> keys,
                      const ChunkBuffers<C>& b) {
  gemm_serial<T, T, C>(rule.scale(), queries, keys.transposed(), row_major(b.queries, keys.rows, keys.rows),
                       false, b.gemm);
}

template <class C>
void set_read_weights(Index n, const ChunkBuffers<C>& b) {
#pragma omp simd
  for (Index i = 0; i < n * n; ++i) b.at[i] = b.queries[i] * b.decay[i];
}

// ------------------------------------------------------------------ forward

template <class T>
struct Forward {
  Rule rule;
  const T *q, *k, *v;
  const C_of<T>*g, *beta;
  T* y;
  C_of<T>* state;
};

template <class T, class C = C_of<T>>
void give(const Forward<T>& call, const ChunkOf<T>& chunk, const ChunkBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index n = chunk.count, width = rule.value;
  const C carried = correct<T>(chunk, call.k, call.v, call.g, call.beta, b);
  gemm_serial<T, C, C>(rule.scale(), rule.rows(call.q, chunk.batch, chunk.head, chunk.first, n),
                       row_major<const C>(chunk.state, rule.key, width), row_major(b.out, n, width), false,
                       b.gemm);
  for (Index i = 0; i < n; ++i) {
    const C by = b.seen[i];
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.out[i * width + d] *= by;
  }
  set_read_weights(n, b);
  gemm_serial<C, C, C>(1, row_major<const C>(b.at, n, n), row_major<const C>(b.corrected, n, width),
                       row_major(b.out, n, width), true, b.gemm);
  store_rows(rule.value_rows(call.y, chunk.batch, chunk.head, chunk.value, chunk.first, n), b.out);
  move_state<T>(chunk, call.k, carried, b);
}

template <class T, class C = C_of<T>>
void forward_head(const Forward<T>& call, Index batch, Index head, const ChunkBuffers<C>& b) {
  const Rule& rule = call.rule;
  std::fill_n(b.state, rule.values * rule.matrix(), C(0));
  for (Index first = 0; first < rule.seq; first += rule.chunk) {
    const Index n = std::min(rule.chunk, rule.seq - first);
    const Matrix<const T> keys = rule.rows(call.k, batch, head, first, n);
    multiply_keys<T>(keys, b);
    multiply_queries<T>(rule, rule.rows(call.q, batch, head, first, n), keys, b);
    for (Index value = 0; value < rule.values; ++value)
      give<T>(call, {rule, batch, head, value, first, n, b.state + value * rule.matrix()}, b);
  }
  const DeltaState of = rule.state();
  C* const to = call.state + (batch * rule.heads + head) * of.numbers();
  std::copy_n(b.state, of.matrix(rule.values), to);
  std::fill_n(to + of.recent(0), of.first() - of.recent(0), C(0));
  to[of.first()] = static_cast<C>(rule.seq);
}

template <class T>
void delta_rule(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const Tensor* o = args.operands;
  const Rule rule = rule_in_chunks(o[0], o[2], args.attrs[0].i, o[7].as<const std::int32_t>());
  const Forward<T> call{rule,
                        o[0].as<const T>(),
                        o[1].as<const T>(),
                        o[2].as<const T>(),
                        o[3].as<const C>(),
                        o[4].as<const C>(),
                        o[5].as<T>(),
                        o[6].as<C>()};
  for_heads<ChunkBuffers<C>>(
      rule, sizeof(C), args, context,
      [&](Index batch, Index head, const ChunkBuffers<C>& b) { forward_head<T>(call, batch, head, b); });
}

// ------------------------------------------------------------------ backward

template <class C>
struct BackwardBuffers {
  ChunkBuffers<C> chunk;
  C* states;                    // [chunks, values, key, value]: in front of each chunk
  C* carried;                   // [values, key, value]: the gradient of the state behind a chunk
  C *dq, *dk, *wide;            // [chunk, key]
  C *slope, *debt, *symmetric;  // [chunk, chunk]: gradients of what outputs read, of what is owed
  C *dcorrected, *dread, *dy;   // [chunk, value]
  C *dsums, *dshare, *into;     // [chunk]

  BackwardBuffers(Scratch& scratch, const RuleSizes& sizes) : chunk(scratch, sizes) {
    const Index c = sizes.chunk, all = sizes.values * sizes.matrix();
    states = scratch.take<C>(sizes.chunks * all);
    carried = scratch.take<C>(all);
    for (C** to : {&dq, &dk, &wide}) *to = scratch.take<C>(c * sizes.key);
    for (C** to : {&slope, &debt, &symmetric}) *to = scratch.take<C>(c * c);
    for (C** to : {&dcorrected, &dread, &dy}) *to = scratch.take<C>(c * sizes.value);
    for (C** to : {&dsums, &dshare, &into}) *to = scratch.take<C>(c);
  }
};

template <class T>
struct Backward {
  Rule rule;
  const T *dy, *q, *k, *v;
  const C_of<T>*g, *beta;
  T *dq, *dk, *dv;
  C_of<T>*dg, *dbeta;
};

template <class C>
C product(const C* a, const C* b, Index n) {
  return lane_sum<C>(n, [=](Index i) { return a[i] * b[i]; });
}

// Computes the gradients of the corrections, and with them those of what the system is made of: `dcorrected`
// becomes that of its right side, `slope` and `debt` those of its weights before decays.
template <class T, class C = C_of<T>>
void solve_back(const Backward<T>& call, const ChunkOf<T>& chunk, const BackwardBuffers<C>& b) {
  const Index n = chunk.count, width = call.rule.value;
  const ChunkBuffers<C>& c = b.chunk;
  const auto square = [n](C* data) { return row_major(data, n, n); };
  const auto rows = [n, width](C* data) { return row_major(data, n, width); };
  // Behind the chunk the state's gradient reads the corrections by their keys.
  const C* const carried = b.carried + chunk.value * call.rule.matrix();
  gemm_serial<T, C, C>(1, chunk.keys(call.k), row_major(carried, call.rule.key, width), rows(b.dcorrected),
                       false, c.gemm);
  for (Index i = 0; i < n; ++i)
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.dcorrected[i * width + d] *= c.left[i];
  gemm_serial<C, C, C>(1, Matrix<const C>(square(c.at)).transposed(), rows(b.dy), rows(b.dcorrected), true,
                       c.gemm);
  gemm_serial<C, C, C>(1, rows(b.dy), Matrix<const C>(rows(c.corrected)).transposed(), square(b.slope), false,
                       c.gemm);
  solve_transposed(c.below, n, width, b.dcorrected);
  gemm_serial<C, C, C>(-1, rows(b.dcorrected), Matrix<const C>(rows(c.corrected)).transposed(),
                       square(b.debt), false, c.gemm);
}

// Adds what the weights between positions give to the gradients of decays and shares, and turns their
// gradients into those of products of queries and keys (`slope`) and of keys with keys (`symmetric`).
template <class C>
void weigh_back(Index n, const BackwardBuffers<C>& b) {
  const ChunkBuffers<C>& c = b.chunk;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) {
      const Index at = i * n + j;
      const C read = j <= i ? b.slope[at] * c.at[at] : C(0), owed = j < i ? b.debt[at] * c.below[at] : C(0);
      b.dsums[i] += read + owed;
      b.dsums[j] -= read + owed;
      b.slope[at] *= c.decay[at];
      b.debt[at] = j < i ? b.debt[at] * c.decay[at] : C(0);
      b.dshare[i] += b.debt[at] * c.keys[at];
    }
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      b.symmetric[i * n + j] = j < i   ? c.share[i] * b.debt[i * n + j]
                               : j > i ? c.share[j] * b.debt[j * n + i]
                                       : C(0);
}

// Adds to dq and dk, and to the gradients of decays, what a chunk's value head reads of states and leaves in
// them.
template <class T, class C = C_of<T>>
void read_back(const Backward<T>& call, const ChunkOf<T>& chunk, C kept, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index n = chunk.count, width = rule.value, key = rule.key;
  const ChunkBuffers<C>& c = b.chunk;
  const Matrix<const T> keys = chunk.keys(call.k),
                        queries = rule.rows(call.q, chunk.batch, chunk.head, chunk.first, n);
  const Matrix<const C> state = row_major<const C>(chunk.state, key, width);
  const Matrix<const C> carried = row_major<const C>(b.carried + chunk.value * rule.matrix(), key, width);
  const auto wide = row_major(b.wide, n, key);
  // Queries read the state in front.
  gemm_serial<C, C, C>(rule.scale(), row_major<const C>(b.dy, n, width), state.transposed(), wide, false,
                       c.gemm);
  for (Index i = 0; i < n; ++i) {
    const T* row = queries.data + i * queries.row_stride;
    for (Index d = 0; d < key; ++d) b.wide[i * key + d] *= c.seen[i];
    const C* add = b.wide + i * key;
    b.dsums[i] += lane_sum<C>(key, [=](Index d) { return load(row[d]) * add[d]; });
    for (Index d = 0; d < key; ++d) b.dq[i * key + d] += add[d];
  }
  // Keys leave corrections in the state behind.
  gemm_serial<C, C, C>(1, row_major<const C>(c.corrected, n, width), carried.transposed(), wide, false,
                       c.gemm);
  C all = kept * product(chunk.state, carried.data, key * width);
  for (Index i = 0; i < n; ++i) {
    const T* row = keys.data + i * keys.row_stride;
    for (Index d = 0; d < key; ++d) b.wide[i * key + d] *= c.left[i];
    const C* add = b.wide + i * key;
    const C part = lane_sum<C>(key, [=](Index d) { return load(row[d]) * add[d]; });
    b.dsums[i] -= part;
    all += part;
    for (Index d = 0; d < key; ++d) b.dk[i * key + d] += add[d];
  }
  b.dsums[n - 1] += all;
  // Keys read the state in front: dread is the gradient of k S, but for its sign.
  gemm_serial<C, C, C>(-1, row_major<const C>(b.dread, n, width), state.transposed(), row_major(b.dk, n, key),
                       true, c.gemm);
}

// Turns the gradient of the state behind the chunk into that of the state in front of it.
template <class T, class C = C_of<T>>
void carry_back(const Backward<T>& call, const ChunkOf<T>& chunk, C kept, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index n = chunk.count, width = rule.value, all = rule.matrix();
  C* __restrict carried = b.carried + chunk.value * all;
  const auto to = row_major(carried, rule.key, width);
#pragma omp simd
  for (Index d = 0; d < all; ++d) carried[d] *= kept;
  for (Index i = 0; i < n; ++i)
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.dy[i * width + d] *= b.chunk.seen[i];
  gemm_serial<T, C, C>(rule.scale(), rule.rows(call.q, chunk.batch, chunk.head, chunk.first, n).transposed(),
                       row_major<const C>(b.dy, n, width), to, true, b.chunk.gemm);
  gemm_serial<T, C, C>(-1, chunk.keys(call.k).transposed(), row_major<const C>(b.dread, n, width), to, true,
                       b.chunk.gemm);
}

// Writes the gradients of decays and shares: those of their sums, added up from the chunk's end.
template <class T, class C = C_of<T>>
void store_gates(const Backward<T>& call, const ChunkOf<T>& chunk, const BackwardBuffers<C>& b) {
  const Index gate = call.rule.gate(chunk.batch, chunk.head, chunk.value, chunk.first);
  C sum = 0;
  for (Index i = chunk.count - 1; i >= 0; --i) {
    sum += b.dsums[i];
    call.dg[gate + i * call.rule.gate_stride()] = sum;
    call.dbeta[gate + i * call.rule.gate_stride()] = b.dshare[i];
  }
}

template <class T, class C = C_of<T>>
void take_back(const Backward<T>& call, const ChunkOf<T>& chunk, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index n = chunk.count, width = rule.value, key = rule.key;
  const ChunkBuffers<C>& c = b.chunk;
  const C kept = correct<T>(chunk, call.k, call.v, call.g, call.beta, c);
  set_read_weights(n, c);
  load_rows(rule.value_rows(call.dy, chunk.batch, chunk.head, chunk.value, chunk.first, n), b.dy);
  solve_back<T>(call, chunk, b);
  for (Index i = 0; i < n; ++i) {
    const C *right = b.dcorrected + i * width, *wanted = c.wanted + i * width, *read = c.read + i * width;
    C *dread = b.dread + i * width, *dv = c.out + i * width;
    const C share = c.share[i], seen = share * c.seen[i];
    b.dshare[i] = product(right, wanted, width);
#pragma omp simd
    for (Index d = 0; d < width; ++d) {
      dv[d] = share * right[d];
      dread[d] = seen * right[d];
    }
    b.dsums[i] = -product(dread, read, width);
  }
  store_rows(rule.value_rows(call.dv, chunk.batch, chunk.head, chunk.value, chunk.first, n), c.out);
  weigh_back(n, b);
  read_back<T>(call, chunk, kept, b);
  const Matrix<const T> keys = chunk.keys(call.k),
                        queries = rule.rows(call.q, chunk.batch, chunk.head, chunk.first, n);
  const Matrix<const C> slope = row_major<const C>(b.slope, n, n);
  gemm_serial<C, T, C>(rule.scale(), slope, keys, row_major(b.dq, n, key), true, c.gemm);
  gemm_serial<C, T, C>(rule.scale(), slope.transposed(), queries, row_major(b.dk, n, key), true, c.gemm);
  gemm_serial<C, T, C>(1, row_major<const C>(b.symmetric, n, n), keys, row_major(b.dk, n, key), true, c.gemm);
  store_gates<T>(call, chunk, b);
  carry_back<T>(call, chunk, kept, b);
}

// Computes the states in front of all chunks of a head.
template <class T, class C = C_of<T>>
void scan_states(const Backward<T>& call, Index batch, Index head, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index all = rule.values * rule.matrix();
  std::fill_n(b.states, all, C(0));
  C* states = b.states;
  for (Index first = 0; first + rule.chunk < rule.seq; first += rule.chunk, states += all) {
    std::copy_n(states, all, states + all);
    multiply_keys<T>(rule.rows(call.k, batch, head, first, rule.chunk), b.chunk);
    for (Index value = 0; value < rule.values; ++value) {
      const ChunkOf<T> chunk{
          rule, batch, head, value, first, rule.chunk, states + all + value * rule.matrix()};
      const C carried = correct<T>(chunk, call.k, call.v, call.g, call.beta, b.chunk);
      move_state<T>(chunk, call.k, carried, b.chunk);
    }
  }
}

template <class T, class C = C_of<T>>
void backward_head(const Backward<T>& call, Index batch, Index head, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index all = rule.values * rule.matrix();
  scan_states<T>(call, batch, head, b);
  std::fill_n(b.carried, all, C(0));
  for (Index number = rule.chunks() - 1; number >= 0; --number) {
    const Index first = number * rule.chunk, n = std::min(rule.chunk, rule.seq - first);
    const Matrix<const T> keys = rule.rows(call.k, batch, head, first, n);
    multiply_keys<T>(keys, b.chunk);
    multiply_queries<T>(rule, rule.rows(call.q, batch, head, first, n), keys, b.chunk);
    std::fill_n(b.dq, n * rule.key, C(0));
    std::fill_n(b.dk, n * rule.key, C(0));
    for (Index value = 0; value < rule.values; ++value)
      take_back<T>(call,
                   {rule, batch, head, value, first, n, b.states + number * all + value * rule.matrix()}, b);
    store_rows(rule.rows(call.dq, batch, head, first, n), b.dq);
    store_rows(rule.rows(call.dk, batch, head, first, n), b.dk);
  }
}

template <class T>
void delta_rule_grad(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const Tensor* o = args.operands;
  const Rule rule = rule_in_chunks(o[1], o[3], args.attrs[0].i, o[6].as<const std::int32_t>());
  const Backward<T> call{rule,
                         o[0].as<const T>(),
                         o[1].as<const T>(),
                         o[2].as<const T>(),
                         o[3].as<const T>(),
                         o[4].as<const C>(),
                         o[5].as<const C>(),
                         o[7].as<T>(),
                         o[8].as<T>(),
                         o[9].as<T>(),
                         o[10].as<C>(),
                         o[11].as<C>()};
  for_heads<BackwardBuffers<C>>(
      rule, sizeof(C), args, context,
      [&](Index batch, Index head, const BackwardBuffers<C>& b) { backward_head<T>(call, batch, head, b); });
}

// ------------------------------------------------------------------ choices

bool types_fit(const OpShape& s, std::initializer_list<int> values, std::initializer_list<int> statistics) {
  if (!same_type(s, values)) return false;
  for (const int i : statistics)
    if (s.operand[i].dtype != OpShape::statistics(s.operand[*values.begin()].dtype)) return false;
  return true;
}

Kernel select_forward(const OpShape& s) {
  if (!types_fit(s, {0, 1, 2, 5}, {3, 4, 6})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_rule<T>; });
}

Kernel select_backward(const OpShape& s) {
  if (!types_fit(s, {0, 1, 2, 3, 7, 8, 9}, {4, 5, 10, 11})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_rule_grad<T>; });
}

template <template <class> class Buffers>
Index workspace(const OpShape& s, int q, std::int32_t threads) {
  const Rule rule = rule_in_chunks(s.operand[q], s.operand[q + 2], s.attrs[0].i, nullptr);
  return threads * (s.operand[q].dtype == DType::f64 ? share_bytes<Buffers<double>>(rule, sizeof(double))
                                                     : share_bytes<Buffers<float>>(rule, sizeof(float)));
}

Index forward_workspace(const OpShape& s, std::int32_t threads) {
  return workspace<ChunkBuffers>(s, 0, threads);
}

Index backward_workspace(const OpShape& s, std::int32_t threads) {
  return workspace<BackwardBuffers>(s, 1, threads);
}

}  // namespace

std::vector<KernelDef> delta_rule_kernels();
std::vector<KernelDef> delta_rule_kernels() {
  return {{"delta_rule", select_forward, forward_workspace},
          {"delta_rule_grad", select_backward, backward_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
