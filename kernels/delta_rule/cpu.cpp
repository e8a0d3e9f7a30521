// Implements the gated delta rule in chunks of positions, and its gradient. A chunk's corrections of the
// state depend on each other: correction i is beta_i (v_i - e^(G_i) k_i S) less what those before it have put
// under its key, where S is the state in front of the chunk and G the decays summed up to each position. That
// is a triangular system, which is solved row by row. Everything is computed in float, or in double for
// double. What a position does not see, such as another document, is masked before exponentials are taken.
#include "delta_rule/cpu.hpp"

#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/delta_rule.hpp"
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

// Names a value head, a chunk of its rows, and what a chunk has of it.
template <class T>
struct ChunkOf {
  const Rule& rule;
  Index batch, head, value, first, count;
  C_of<T>* state;  // in front of the chunk, and behind it afterwards

  Matrix<const T> keys(const T* k) const { return rule.rows(k, batch, head, first, count); }
  Matrix<const T> values(const T* v) const { return rule.value_rows(v, batch, head, value, first, count); }
};

// Fills the system of a chunk. Returns what is left of the state behind it.
template <class T, class C = C_of<T>>
C set_system(const ChunkOf<T>& chunk, const C* g, const C* beta, const ChunkBuffers<C>& b) {
  const Index n = chunk.count, gate = chunk.rule.gate(chunk.batch, chunk.head, chunk.value, chunk.first);
  const C carried = set_decays(chunk.rule, g + gate, beta + gate, chunk.first, n, chunk.batch, b);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      b.below[i * n + j] = j < i ? b.share[i] * b.keys[i * n + j] * b.decay[i * n + j] : C(0);
  return carried;
}

// Computes the corrections of a chunk, of values or, without v, of zeros that are as wide.
template <class T, class C = C_of<T>>
void solve_corrections(const ChunkOf<T>& chunk, const T* k, const T* v, const ChunkBuffers<C>& b) {
  const Index n = chunk.count, width = chunk.rule.value;
  gemm_serial<T, C, C>(1, chunk.keys(k), row_major<const C>(chunk.state, chunk.rule.key, width),
                       row_major(b.read, n, width), false, b.gemm);
  const Matrix<const T> values = chunk.values(v);
  for (Index i = 0; i < n; ++i) {
    const T* __restrict row = v ? values.data + i * values.row_stride : nullptr;
    C* __restrict wanted = b.wanted + i * width, * __restrict corrected = b.corrected + i * width;
    const C* __restrict read = b.read + i * width, seen = b.seen[i], share = b.share[i];
#pragma omp simd
    for (Index d = 0; d < width; ++d) {
      wanted[d] = (row ? load(row[d]) : C(0)) - seen * read[d];
      corrected[d] = share * wanted[d];
    }
  }
  solve(b.below, n, width, b.corrected);
}

// Does both.
template <class T, class C = C_of<T>>
C correct(const ChunkOf<T>& chunk, const T* k, const T* v, const C* g, const C* beta,
          const ChunkBuffers<C>& b) {
  const C carried = set_system<T>(chunk, g, beta, b);
  solve_corrections<T>(chunk, k, v, b);
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

// Has, in front of the states of value heads, those of all runs: where they begin, or where the gradients of
// those behind them do.
template <class C>
struct RunStates {
  const C* of = nullptr;  // [batch, runs, heads, key * value]; null: zeros
  Index runs = 1;

  void copy(const Rule& rule, Index batch, Index head, Index first, C* to) const {
    const Index all = rule.values * rule.matrix(), run = rule.runs.position(first) / rule.runs.rows;
    if (of)
      std::copy_n(of + ((batch * runs + run) * rule.heads + head) * all, all, to);
    else
      std::fill_n(to, all, C(0));
  }
};

// `state` is null for runs.
template <class T>
struct Forward {
  Rule rule;
  const T *q, *k, *v;
  const C_of<T>*g, *beta;
  T* y;
  C_of<T>* state;
  RunStates<C_of<T>> starts = {};
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
  for (Index first = 0, n = 0; first < rule.seq; first += n) {
    const Index done = first % rule.runs.rows;
    if (done == 0) call.starts.copy(rule, batch, head, first, b.state);
    n = std::min(rule.chunk, rule.runs.rows - done);
    const Matrix<const T> keys = rule.rows(call.k, batch, head, first, n);
    multiply_keys<T>(keys, b);
    multiply_queries<T>(rule, rule.rows(call.q, batch, head, first, n), keys, b);
    for (Index value = 0; value < rule.values; ++value)
      give<T>(call, {rule, batch, head, value, first, n, b.state + value * rule.matrix()}, b);
  }
  if (!call.state) return;
  const DeltaState of = rule.state();
  C* const to = call.state + (batch * rule.heads + head) * of.numbers();
  std::copy_n(b.state, of.matrix(rule.values), to);
  std::fill_n(to + of.recent(0), of.first() - of.recent(0), C(0));
  to[of.first()] = static_cast<C>(rule.seq);
}

template <class T>
void run_forward(const Forward<T>& call, const KernelArgs& args, const KernelContext& context) {
  for_heads<ChunkBuffers<C_of<T>>>(call.rule, sizeof(C_of<T>), args, context,
                                   [&](Index batch, Index head, const ChunkBuffers<C_of<T>>& b) {
                                     forward_head<T>(call, batch, head, b);
                                   });
}

template <class T>
void delta_rule(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const ArgsOf<ops::DeltaRule> op(args);
  const auto* documents = op["documents"].as<const std::int32_t>();
  run_forward<T>({.rule = rule_in_chunks(op["q"], op["v"], op.integer("chunk"), documents),
                  .q = op["q"].as<const T>(),
                  .k = op["k"].as<const T>(),
                  .v = op["v"].as<const T>(),
                  .g = op["g"].as<const C>(),
                  .beta = op["beta"].as<const C>(),
                  .y = op["y"].as<T>(),
                  .state = op["state"].as<C>()},
                 args, context);
}

// Returns the rule of runs of which this rank has `q`, or keys of that shape.
template <class Op>
Rule rule_of_runs(const ArgsOf<Op>& op, OperandOf<Op> q) {
  const Index rows = op.integer("rows");
  Rule rule = rule_in_runs(op[q], op["v"], op.integer("chunk"), rows,
                           op["documents"].template as<const std::int32_t>());
  rule.runs = SequenceRuns::of(op[q], rows, op.integer("chunks"));
  return rule;
}

template <class C>
RunStates<C> states_in(const Tensor& x) {
  return {x.as<const C>(), x.dim[1]};
}

template <class T>
void delta_rule_runs(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const ArgsOf<ops::DeltaRuleRuns> op(args);
  run_forward<T>({.rule = rule_of_runs(op, "q"),
                  .q = op["q"].as<const T>(),
                  .k = op["k"].as<const T>(),
                  .v = op["v"].as<const T>(),
                  .g = op["g"].as<const C>(),
                  .beta = op["beta"].as<const C>(),
                  .y = op["y"].as<T>(),
                  .state = nullptr,
                  .starts = states_in<C>(op["starts"])},
                 args, context);
}

// ------------------------------------------------------------------ backward

// Has what takes the gradient of the state from behind a chunk to its front.
template <class C>
struct CarryBuffers {
  ChunkBuffers<C> chunk;
  C* carried;                  // [values, key, value]: the gradient of the state behind a chunk
  C *dcorrected, *dread, *dy;  // [chunk, value]

  CarryBuffers(Scratch& scratch, const RuleSizes& sizes) : chunk(scratch, sizes) {
    carried = scratch.take<C>(sizes.values * sizes.matrix());
    for (C** to : {&dcorrected, &dread, &dy}) *to = scratch.take<C>(sizes.chunk * sizes.value);
  }
};

template <class C>
struct BackwardBuffers : CarryBuffers<C> {
  C* states;                    // [chunks, values, key, value]: in front of each chunk of a run
  C *dq, *dk, *wide;            // [chunk, key]
  C *slope, *debt, *symmetric;  // [chunk, chunk]: gradients of what outputs read, of what is owed
  C *dsums, *dshare, *into;     // [chunk]

  BackwardBuffers(Scratch& scratch, const RuleSizes& sizes) : CarryBuffers<C>(scratch, sizes) {
    const Index c = sizes.chunk;
    states = scratch.take<C>(sizes.chunks * sizes.values * sizes.matrix());
    for (C** to : {&dq, &dk, &wide}) *to = scratch.take<C>(c * sizes.key);
    for (C** to : {&slope, &debt, &symmetric}) *to = scratch.take<C>(c * c);
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
  RunStates<C_of<T>> starts = {}, ends = {};
};

template <class C>
C product(const C* a, const C* b, Index n) {
  return lane_sum<C>(n, [=](Index i) { return a[i] * b[i]; });
}

// Computes the gradients of the corrections' right sides: `dcorrected`.
template <class T, class C = C_of<T>>
void solve_carried(const ChunkOf<T>& chunk, const T* k, const CarryBuffers<C>& b) {
  const Index n = chunk.count, key = chunk.rule.key, width = chunk.rule.value;
  const ChunkBuffers<C>& c = b.chunk;
  const auto rows = [n, width](C* data) { return row_major(data, n, width); };
  // Behind the chunk the state's gradient reads the corrections by their keys.
  const C* const carried = b.carried + chunk.value * chunk.rule.matrix();
  gemm_serial<T, C, C>(1, chunk.keys(k), row_major(carried, key, width), rows(b.dcorrected), false, c.gemm);
  for (Index i = 0; i < n; ++i)
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.dcorrected[i * width + d] *= c.left[i];
  gemm_serial<C, C, C>(1, row_major<const C>(c.at, n, n).transposed(), rows(b.dy), rows(b.dcorrected), true,
                       c.gemm);
  solve_transposed(c.below, n, width, b.dcorrected);
}

// Computes with them the gradients of the system's weights before decays: `slope` and `debt`.
template <class C>
void weigh_corrections(Index n, Index width, const BackwardBuffers<C>& b) {
  const ChunkBuffers<C>& c = b.chunk;
  const Matrix<const C> corrected = row_major<const C>(c.corrected, n, width);
  gemm_serial<C, C, C>(1, row_major<const C>(b.dy, n, width), corrected.transposed(),
                       row_major(b.slope, n, n), false, c.gemm);
  gemm_serial<C, C, C>(-1, row_major<const C>(b.dcorrected, n, width), corrected.transposed(),
                       row_major(b.debt, n, n), false, c.gemm);
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
void carry_back(const ChunkOf<T>& chunk, const T* q, const T* k, C kept, const CarryBuffers<C>& b) {
  const Rule& rule = chunk.rule;
  const Index n = chunk.count, width = rule.value, all = rule.matrix();
  C* __restrict carried = b.carried + chunk.value * all;
  const auto to = row_major(carried, rule.key, width);
#pragma omp simd
  for (Index d = 0; d < all; ++d) carried[d] *= kept;
  for (Index i = 0; i < n; ++i)
#pragma omp simd
    for (Index d = 0; d < width; ++d) b.dy[i * width + d] *= b.chunk.seen[i];
  gemm_serial<T, C, C>(rule.scale(), rule.rows(q, chunk.batch, chunk.head, chunk.first, n).transposed(),
                       row_major<const C>(b.dy, n, width), to, true, b.chunk.gemm);
  gemm_serial<T, C, C>(-1, chunk.keys(k).transposed(), row_major<const C>(b.dread, n, width), to, true,
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
  solve_carried<T>(chunk, call.k, b);
  weigh_corrections(n, width, b);
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
  carry_back<T>(chunk, call.q, call.k, kept, b);
}

// Computes the states in front of all chunks of a head's run, which begins at row `begin`.
template <class T, class C = C_of<T>>
void scan_states(const Backward<T>& call, Index batch, Index head, Index begin, const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index all = rule.values * rule.matrix(), end = begin + rule.runs.rows;
  call.starts.copy(rule, batch, head, begin, b.states);
  C* states = b.states;
  for (Index first = begin; first + rule.chunk < end; first += rule.chunk, states += all) {
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
void backward_run(const Backward<T>& call, Index batch, Index head, Index begin,
                  const BackwardBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index all = rule.values * rule.matrix();
  scan_states<T>(call, batch, head, begin, b);
  call.ends.copy(rule, batch, head, begin, b.carried);
  for (Index number = rule.chunks() - 1; number >= 0; --number) {
    const Index first = begin + number * rule.chunk, n = std::min(rule.chunk, begin + rule.runs.rows - first);
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
void run_backward(const Backward<T>& call, const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  for_heads<BackwardBuffers<C>>(call.rule, sizeof(C), args, context,
                                [&](Index batch, Index head, const BackwardBuffers<C>& b) {
                                  for (Index begin = 0; begin < call.rule.seq; begin += call.rule.runs.rows)
                                    backward_run<T>(call, batch, head, begin, b);
                                });
}

template <class T, class Op>
Backward<T> backward_of(const Rule& rule, const ArgsOf<Op>& op) {
  using C = C_of<T>;
  return {.rule = rule,
          .dy = op["dy"].template as<const T>(),
          .q = op["q"].template as<const T>(),
          .k = op["k"].template as<const T>(),
          .v = op["v"].template as<const T>(),
          .g = op["g"].template as<const C>(),
          .beta = op["beta"].template as<const C>(),
          .dq = op["dq"].template as<T>(),
          .dk = op["dk"].template as<T>(),
          .dv = op["dv"].template as<T>(),
          .dg = op["dg"].template as<C>(),
          .dbeta = op["dbeta"].template as<C>()};
}

template <class T>
void delta_rule_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaRuleGrad> op(args);
  const auto* documents = op["documents"].as<const std::int32_t>();
  const Rule rule = rule_in_chunks(op["q"], op["v"], op.integer("chunk"), documents);
  run_backward(backward_of<T>(rule, op), args, context);
}

template <class T>
void delta_rule_runs_grad(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const ArgsOf<ops::DeltaRuleRunsGrad> op(args);
  Backward<T> call = backward_of<T>(rule_of_runs(op, "q"), op);
  call.starts = states_in<C>(op["starts"]);
  call.ends = states_in<C>(op["ends"]);
  run_backward(call, args, context);
}

// ------------------------------------------------------------------ what runs make of states

// `q` and `dy` are null where only forward's maps are wanted.
template <class T>
struct Maps {
  Rule rule;
  const T *k, *v, *q, *dy;
  const C_of<T>*g, *beta;
  C_of<T>* maps;
  Index width;  // numbers of a run of a value head

  C_of<T>* of(Index batch, Index head, Index value, Index begin) const {
    const Index runs = rule.seq / rule.runs.rows, run = begin / rule.runs.rows;
    return maps + (((batch * runs + run) * rule.heads + head) * rule.values + value) * width;
  }
};

template <class C>
void set_identity(Index n, C* to) {
  std::fill_n(to, n * n, C(0));
  for (Index i = 0; i < n; ++i) to[i * n + i] = 1;
}

// Takes zeros to E, and the columns of 1, to which nothing is added, to M. `squares` is the rule of values
// that are as wide as keys.
template <class T, class C = C_of<T>>
void map_forward(const Maps<T>& call, const Rule& squares, Index batch, Index head, Index begin,
                 const ChunkBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index square = rule.key * rule.key;
  for (Index first = begin, n = 0; first < begin + rule.runs.rows; first += n) {
    n = std::min(rule.chunk, begin + rule.runs.rows - first);
    multiply_keys<T>(rule.rows(call.k, batch, head, first, n), b);
    for (Index value = 0; value < rule.values; ++value) {
      C* const to = call.of(batch, head, value, begin);
      if (first == begin) {
        set_identity(rule.key, to);
        std::fill_n(to + square, rule.matrix(), C(0));
      }
      const ChunkOf<T> made{squares, batch, head, value, first, n, to},
          added{rule, batch, head, value, first, n, to + square};
      const C carried = set_system<T>(added, call.g, call.beta, b);
      solve_corrections<T>(made, call.k, nullptr, b);
      move_state<T>(made, call.k, carried, b);
      solve_corrections<T>(added, call.k, call.v, b);
      move_state<T>(added, call.k, carried, b);
    }
  }
}

// Takes zeros behind the run to B in front of it.
template <class T, class C = C_of<T>>
void map_backward(const Maps<T>& call, Index batch, Index head, Index begin, const CarryBuffers<C>& b) {
  const Rule& rule = call.rule;
  const Index width = rule.value;
  std::fill_n(b.carried, rule.values * rule.matrix(), C(0));
  for (Index number = rule.chunks() - 1; number >= 0; --number) {
    const Index first = begin + number * rule.chunk, n = std::min(rule.chunk, begin + rule.runs.rows - first);
    const Matrix<const T> keys = rule.rows(call.k, batch, head, first, n);
    multiply_keys<T>(keys, b.chunk);
    multiply_queries<T>(rule, rule.rows(call.q, batch, head, first, n), keys, b.chunk);
    for (Index value = 0; value < rule.values; ++value) {
      const ChunkOf<T> chunk{rule, batch, head, value, first, n, nullptr};
      const C kept = set_system<T>(chunk, call.g, call.beta, b.chunk);
      set_read_weights(n, b.chunk);
      load_rows(rule.value_rows(call.dy, batch, head, value, first, n), b.dy);
      solve_carried<T>(chunk, call.k, b);
      for (Index i = 0; i < n; ++i) {
        const C by = b.chunk.share[i] * b.chunk.seen[i];
#pragma omp simd
        for (Index d = 0; d < width; ++d) b.dread[i * width + d] = by * b.dcorrected[i * width + d];
      }
      carry_back<T>(chunk, call.q, call.k, kept, b);
    }
  }
  for (Index value = 0; value < rule.values; ++value)
    std::copy_n(b.carried + value * rule.matrix(), rule.matrix(),
                call.of(batch, head, value, begin) + rule.key * rule.key + rule.matrix());
}

// Returns the rule of values that are as wide as keys.
Rule with_squares(Rule rule) {
  rule.value = rule.key;
  return rule;
}

// Has room for columns of either width.
template <class C>
struct MapBuffers : CarryBuffers<C> {
  MapBuffers(Scratch& scratch, RuleSizes sizes) : CarryBuffers<C>(scratch, as_wide(sizes)) {}

 private:
  static RuleSizes as_wide(RuleSizes sizes) {
    sizes.value = std::max(sizes.value, sizes.key);
    return sizes;
  }
};

template <class T>
void delta_maps(const KernelArgs& args, const KernelContext& context) {
  using C = C_of<T>;
  const ArgsOf<ops::DeltaMaps> op(args);
  const Rule rule = rule_of_runs(op, "k"), squares = with_squares(rule);
  const Maps<T> call{.rule = rule,
                     .k = op["k"].as<const T>(),
                     .v = op["v"].as<const T>(),
                     .q = op["q"].as<const T>(),
                     .dy = op["dy"].as<const T>(),
                     .g = op["g"].as<const C>(),
                     .beta = op["beta"].as<const C>(),
                     .maps = op["maps"].as<C>(),
                     .width = op["maps"].inner(1)};
  for_heads<MapBuffers<C>>(rule, sizeof(C), args, context,
                           [&](Index batch, Index head, const MapBuffers<C>& b) {
                             for (Index begin = 0; begin < rule.seq; begin += rule.runs.rows) {
                               map_forward<T>(call, squares, batch, head, begin, b.chunk);
                               if (call.dy) map_backward<T>(call, batch, head, begin, b);
                             }
                           });
}

// Puts the maps of a value head's runs together, one after the other.
template <class C>
void delta_starts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaStarts> op(args);
  const Tensor &maps = op["maps"], &starts = op["starts"];
  const Index key = op.integer("key_dim"), value = op.integer("value_dim"), runs = maps.dim[1],
              width = maps.inner(1), heads = maps.inner(maps.rank - 2) / width;
  const bool back = op.integer("back") != 0;
  const Index room = gemm_workspace(1, key, value, key, sizeof(C));
  parallel(*context.workers, maps.dim[0] * heads, [&](Index i) {
    const auto at = [&](Index run) { return (i / heads * runs + run) * heads + i % heads; };
    void* const own = static_cast<std::byte*>(args.workspace) + i % context.workers->count * room;
    const Index first = back ? runs - 1 : 0, step = back ? -1 : 1, added = key * (key + (back ? value : 0));
    std::fill_n(starts.as<C>() + at(first) * key * value, key * value, C(0));
    for (Index run = first; run + step >= 0 && run + step < runs; run += step) {
      const C* const of = maps.as<const C>() + at(run) * width;
      const Matrix<const C> moved = row_major(of, key, key);
      C* const next = starts.as<C>() + at(run + step) * key * value;
      std::copy_n(of + added, key * value, next);
      gemm_serial<C, C, C>(1, back ? moved.transposed() : moved,
                           row_major<const C>(starts.as<C>() + at(run) * key * value, key, value),
                           row_major(next, key, value), true, own);
    }
  });
}

// ------------------------------------------------------------------ choices

Kernel select_forward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRule> s(shape);
  if (!types_fit(s, {"q", "k", "v", "y"}, {"g", "beta", "state"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return delta_rule<T>; });
}

Kernel select_backward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleGrad> s(shape);
  if (!types_fit(s, {"dy", "q", "k", "v", "dq", "dk", "dv"}, {"g", "beta", "dg", "dbeta"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return delta_rule_grad<T>; });
}

// A rank has whole runs.
template <class Op>
bool has_runs(const ShapeOf<Op>& s, OperandOf<Op> q) {
  return s[q].dims[1].extent % s.integer("rows") == 0;
}

Kernel select_runs(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleRuns> s(shape);
  if (!types_fit(s, {"q", "k", "v", "y"}, {"g", "beta", "starts"}) || !has_runs(s, "q")) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return delta_rule_runs<T>; });
}

Kernel select_runs_backward(const OpShape& shape) {
  const ShapeOf<ops::DeltaRuleRunsGrad> s(shape);
  if (!types_fit(s, {"dy", "q", "k", "v", "dq", "dk", "dv"},
                 {"g", "beta", "starts", "ends", "dg", "dbeta"}) ||
      !has_runs(s, "q"))
    return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return delta_rule_runs_grad<T>; });
}

Kernel select_maps(const OpShape& shape) {
  const ShapeOf<ops::DeltaMaps> s(shape);
  if (!types_fit(s, {"k", "v"}, {"g", "beta", "maps"}) || !has_runs(s, "k")) return nullptr;
  if (s.has("q") && !same_type(s, {"k", "q", "dy"})) return nullptr;
  return choose_value(s["k"].dtype, []<class T>() -> Kernel { return delta_maps<T>; });
}

Kernel select_starts(const OpShape& shape) {
  const ShapeOf<ops::DeltaStarts> s(shape);
  if (!same_type(s, {"maps", "starts"})) return nullptr;
  return s["maps"].dtype == DType::f64   ? delta_starts<double>
         : s["maps"].dtype == DType::f32 ? delta_starts<float>
                                         : nullptr;
}

template <template <class> class Buffers>
Index workspace(const Rule& rule, DType type, std::int32_t threads) {
  return threads * (type == DType::f64 ? share_bytes<Buffers<double>>(rule, sizeof(double))
                                       : share_bytes<Buffers<float>>(rule, sizeof(float)));
}

template <template <class> class Buffers, class Op>
Index whole_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<Op> s(shape);
  return workspace<Buffers>(rule_in_chunks(s["q"], s["v"], s.integer("chunk"), nullptr), s["q"].dtype,
                            threads);
}

template <class Op>
Rule rule_in_runs(const ShapeOf<Op>& s, OperandOf<Op> q) {
  return delta_rule_parts::rule_in_runs(s[q], s["v"], s.integer("chunk"), s.integer("rows"), nullptr);
}

template <template <class> class Buffers, class Op>
Index runs_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<Op> s(shape);
  return workspace<Buffers>(rule_in_runs(s, "q"), s["q"].dtype, threads);
}

// Queries may be absent here, and keys have their shape.
Index maps_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::DeltaMaps> s(shape);
  return workspace<MapBuffers>(rule_in_runs(s, "k"), s["k"].dtype, threads);
}

Index starts_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::DeltaStarts> s(shape);
  const Index key = s.integer("key_dim");
  return threads * gemm_workspace(1, key, s.integer("value_dim"), key, s["maps"].dtype == DType::f64 ? 8 : 4);
}

}  // namespace

std::vector<KernelDef> delta_rule_kernels();
std::vector<KernelDef> delta_rule_kernels() {
  using namespace ops;
  return {
      {DeltaRule::kind, select_forward, whole_workspace<ChunkBuffers, DeltaRule>},
      {DeltaRuleGrad::kind, select_backward, whole_workspace<BackwardBuffers, DeltaRuleGrad>},
      {DeltaMaps::kind, select_maps, maps_workspace},
      {DeltaStarts::kind, select_starts, starts_workspace},
      {DeltaRuleRuns::kind, select_runs, runs_workspace<ChunkBuffers, DeltaRuleRuns>},
      {DeltaRuleRunsGrad::kind, select_runs_backward, runs_workspace<BackwardBuffers, DeltaRuleRunsGrad>}};
}

}  // namespace prun::cpu::PRUN_ISA
