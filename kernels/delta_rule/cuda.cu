// The gated delta rule in chunks, as kernels/delta_rule/cpu.cpp has it: a block of threads takes a value
// head, in backward a key head with all its values, and works on its matrices in device memory, each element
// by one thread. Runs of positions are for blocks of their own. It takes any shape; nothing is split over
// blocks that would have to be summed. Tensor cores have kernels of their own (tensor_delta.hpp) for shapes
// that models have, of whole sequences.
#include "delta_rule/cuda.hpp"

#include <cmath>

#include "cuda/math.cuh"
#include "delta_rule/cuda_tensor.hpp"

namespace prun::cuda {
namespace {

using Index = std::int64_t;

constexpr int block_threads = 256;
constexpr Index most_blocks = 512;  // that have a share of the workspace at a time

// Calls body(i) for all i below n, shared out among the block's threads.
template <class Body>
__device__ __forceinline__ void each(Index n, const Body& body) {
  for (Index i = threadIdx.x; i < n; i += blockDim.x) body(i);
}

// Calls body(row, column) for all of a matrix.
template <class Body>
__device__ __forceinline__ void each(Index rows, Index columns, const Body& body) {
  each(rows * columns, [&](Index i) { body(i / columns, i % columns); });
}

template <class C, class Term>
__device__ __forceinline__ C sum_of(Index n, const Term& term) {
  C sum = 0;
  for (Index i = 0; i < n; ++i) sum += term(i);
  return sum;
}

// Is a chunk of a head: where its rows are.
struct Place {
  DeltaRuleSizes of;
  Index sample, head, first, count;

  __device__ Index key(Index row, Index channel) const {
    return ((sample * of.seq + first + row) * of.heads + head) * of.key + channel;
  }
  __device__ Index gate(Index row, Index value) const {
    return ((sample * of.seq + first + row) * of.heads + head) * of.values + value;
  }
  __device__ Index value(Index row, Index value, Index channel) const {
    return gate(row, value) * of.value + channel;
  }
  // Returns the first position that a row sees, counted as rows are.
  __device__ Index start(Index row) const {
    return (of.documents ? of.documents[sample * of.seq + first + row] : 0) - of.runs.shift(first + row);
  }
};

// Calls body(place) for the chunks of a head's run, from the first or from the last on.
template <class Body>
__device__ __forceinline__ void each_chunk(const DeltaRuleSizes& of, Index head, Index run, bool back,
                                           const Body& body) {
  for (Index i = 0; i < of.chunks(); ++i) {
    const Index number = back ? of.chunks() - 1 - i : i, done = number * of.chunk, left = of.runs.rows - done;
    body(Place{of, head / of.heads, head % of.heads, run * of.runs.rows + done,
               left < of.chunk ? left : of.chunk},
         number);
  }
}

// Returns where the states of a head's run are, among those of all runs; null: there are none.
template <class C>
__device__ const C* states_of(const DeltaRuleSizes& of, const C* states, Index head, Index run) {
  const Index number = of.runs.position(run * of.runs.rows) / of.runs.rows;
  return states ? states + ((head / of.heads * of.all_runs + number) * of.heads + head % of.heads) *
                               of.values * of.key * of.value
                : nullptr;
}

// Takes pieces of a block's share of the workspace; without one, it counts them.
template <class C>
struct Room {
  C* next;
  Index count = 0;

  constexpr C* take(Index n) {
    C* const piece = next ? next + count : nullptr;
    count += n;
    return piece;
  }
};

// Holds what a chunk has of a value head, by the names of kernels/delta_rule/cpu.cpp.
template <class C>
struct ChunkMatrices {
  C *decay, *below, *at, *corrected, *seen, *left, *share, *sums;

  constexpr ChunkMatrices(Room<C>& room, const DeltaRuleSizes& of) {
    const Index square = of.chunk * of.chunk;
    decay = room.take(square);
    below = room.take(square);
    at = room.take(square);
    corrected = room.take(of.chunk * of.value);
    seen = room.take(of.chunk);
    left = room.take(of.chunk);
    share = room.take(of.chunk);
    sums = room.take(of.chunk);
  }
};

// Fills decays and shares. What a position does not see is masked before exponentials are taken.
template <class C>
__device__ void set_decays(const Place& p, Index value, const C* g, const C* beta,
                           const ChunkMatrices<C>& m) {
  if (threadIdx.x == 0) {
    double sum = 0;
    for (Index i = 0; i < p.count; ++i)
      m.sums[i] = static_cast<C>(sum += static_cast<double>(g[p.gate(i, value)]));
  }
  __syncthreads();
  const Index last_start = p.start(p.count - 1);
  each(p.count, [&](Index i) {
    m.share[i] = beta[p.gate(i, value)];
    m.seen[i] = p.start(i) < p.first ? exp_of<C>(m.sums[i]) : C(0);
    m.left[i] = p.first + i >= last_start ? exp_of<C>(m.sums[p.count - 1] - m.sums[i]) : C(0);
  });
  each(p.count, p.count, [&](Index i, Index j) {
    m.decay[i * p.count + j] = j <= i && p.first + j >= p.start(i) ? exp_of<C>(m.sums[i] - m.sums[j]) : C(0);
  });
  __syncthreads();
}

// Without q, nothing is read.
template <class T, class C>
__device__ void set_weights(const Place& p, const T* q, const T* k, C scale, const ChunkMatrices<C>& m) {
  const Index n = p.count;
  each(n, n, [&](Index i, Index j) {
    C of_key = 0, of_query = 0;
    for (Index d = 0; j <= i && d < p.of.key; ++d) {
      const C key = load(k + p.key(j, d));
      of_key += load(k + p.key(i, d)) * key;
      if (q) of_query += load(q + p.key(i, d)) * key;
    }
    m.below[i * n + j] = j < i ? m.share[i] * of_key * m.decay[i * n + j] : C(0);
    m.at[i * n + j] = j <= i ? scale * of_query * m.decay[i * n + j] : C(0);
  });
}

// Computes corrections, one column by one thread, of values or, without v, of zeros that are as wide. `read`
// and `wanted`, if there, keep what is on the way.
template <class T, class C>
__device__ void correct(const Place& p, Index value, const T* k, const T* v, const C* state,
                        const ChunkMatrices<C>& m, C* read, C* wanted) {
  const Index n = p.count, width = p.of.value;
  __syncthreads();
  each(n, width, [&](Index i, Index d) {
    const C sum = sum_of<C>(p.of.key, [&](Index c) { return load(k + p.key(i, c)) * state[c * width + d]; });
    const C miss = (v ? load(v + p.value(i, value, d)) : C(0)) - m.seen[i] * sum;
    m.corrected[i * width + d] = m.share[i] * miss;
    if (read) {
      read[i * width + d] = sum;
      wanted[i * width + d] = miss;
    }
  });
  __syncthreads();
  each(width, [&](Index d) {
    for (Index i = 1; i < n; ++i)
      m.corrected[i * width + d] -=
          sum_of<C>(i, [&](Index j) { return m.below[i * n + j] * m.corrected[j * width + d]; });
  });
  __syncthreads();
}

template <class T, class C>
__device__ void move_state(const Place& p, const T* k, C* state, const ChunkMatrices<C>& m) {
  const Index n = p.count, width = p.of.value;
  const C kept = m.seen[n - 1];
  each(p.of.key, width, [&](Index c, Index d) {
    state[c * width + d] = kept * state[c * width + d] + sum_of<C>(n, [&](Index i) {
                             return load(k + p.key(i, c)) * m.left[i] * m.corrected[i * width + d];
                           });
  });
  __syncthreads();
}

// ---------------------------------------------------------------- forward

template <class T, class C = Compute<T>>
__device__ void give(const DeltaRuleForward<T>& call, const Place& p, Index value, C scale, C* state,
                     const ChunkMatrices<C>& m) {
  const Index n = p.count, width = p.of.value;
  set_decays(p, value, call.g, call.beta, m);
  set_weights(p, call.q, call.k, scale, m);
  correct(p, value, call.k, call.v, state, m, static_cast<C*>(nullptr), static_cast<C*>(nullptr));
  each(n, width, [&](Index i, Index d) {
    const C before =
        sum_of<C>(p.of.key, [&](Index c) { return load(call.q + p.key(i, c)) * state[c * width + d]; });
    store(call.y + p.value(i, value, d), scale * m.seen[i] * before + sum_of<C>(i + 1, [&](Index j) {
                                           return m.at[i * n + j] * m.corrected[j * width + d];
                                         }));
  });
  __syncthreads();
  move_state(p, call.k, state, m);
}

template <class T, class C = Compute<T>>
__global__ __launch_bounds__(block_threads) void delta_rule_kernel(DeltaRuleForward<T> call, C scale,
                                                                   Index share) {
  const DeltaRuleSizes& of = call.sizes;
  const DeltaState layout = of.state();
  const Index matrix = of.key * of.value;
  Room<C> room{static_cast<C*>(call.workspace) + blockIdx.x * share};
  const ChunkMatrices<C> m(room, of);
  for (Index item = blockIdx.x; item < of.batch * of.heads * of.own_runs() * of.values; item += gridDim.x) {
    const Index value = item % of.values, run = item / of.values % of.own_runs(),
                head = item / of.values / of.own_runs();
    C* const kept = call.state ? call.state + head * layout.numbers() : nullptr;
    C* const state = kept ? kept + layout.matrix(value) : room.next + room.count;
    const C* const start = states_of(of, call.starts, head, run);
    each(matrix, [&](Index i) { state[i] = start ? start[value * matrix + i] : C(0); });
    if (kept && value == 0) {
      each(layout.first() - layout.recent(0), [&](Index i) { kept[layout.recent(0) + i] = 0; });
      if (threadIdx.x == 0) kept[layout.first()] = static_cast<C>(of.seq);
    }
    each_chunk(of, head, run, false, [&](const Place& p, Index) { give(call, p, value, scale, state, m); });
  }
}

// ---------------------------------------------------------------- backward

template <class C>
struct BackwardMatrices {
  ChunkMatrices<C> chunk;
  C *states, *carried, *dq, *dk, *wide, *keys, *slope, *debt, *read, *wanted, *dcorrected, *dread, *dsums,
      *dshare;

  constexpr BackwardMatrices(Room<C>& room, const DeltaRuleSizes& of) : chunk(room, of) {
    const Index all = of.values * of.key * of.value, square = of.chunk * of.chunk;
    states = room.take(of.chunks() * all);
    carried = room.take(all);
    for (C** to : {&dq, &dk, &wide}) *to = room.take(of.chunk * of.key);
    for (C** to : {&keys, &slope, &debt}) *to = room.take(square);
    for (C** to : {&read, &wanted, &dcorrected, &dread}) *to = room.take(of.chunk * of.value);
    for (C** to : {&dsums, &dshare}) *to = room.take(of.chunk);
  }
};

// Computes the gradients of the corrections' right sides.
template <class T, class C>
__device__ void solve_carried(const Place& p, Index value, const T* k, const T* dy, const C* carried,
                              const ChunkMatrices<C>& m, C* dcorrected) {
  const Index n = p.count, width = p.of.value;
  __syncthreads();
  each(n, width, [&](Index i, Index d) {
    const C behind =
        sum_of<C>(p.of.key, [&](Index c) { return load(k + p.key(i, c)) * carried[c * width + d]; });
    C sum = m.left[i] * behind;
    for (Index j = i; j < n; ++j) sum += m.at[j * n + i] * load(dy + p.value(j, value, d));
    dcorrected[i * width + d] = sum;
  });
  __syncthreads();
  each(width, [&](Index d) {
    for (Index i = n - 2; i >= 0; --i)
      for (Index j = i + 1; j < n; ++j)
        dcorrected[i * width + d] -= m.below[j * n + i] * dcorrected[j * width + d];
  });
  __syncthreads();
}

// Computes those of what the system is made of.
template <class T, class C>
__device__ void weigh_corrections(const DeltaRuleBackward<T>& call, const Place& p, Index value,
                                  const BackwardMatrices<C>& b) {
  const Index n = p.count, width = p.of.value;
  const ChunkMatrices<C>& m = b.chunk;
  each(n, n, [&](Index i, Index j) {
    b.slope[i * n + j] = j > i ? C(0) : sum_of<C>(width, [&](Index d) {
      return load(call.dy + p.value(i, value, d)) * m.corrected[j * width + d];
    });
    b.keys[i * n + j] = j >= i ? C(0) : sum_of<C>(p.of.key, [&](Index c) {
      return load(call.k + p.key(i, c)) * load(call.k + p.key(j, c));
    });
    b.debt[i * n + j] = j >= i ? C(0) : -sum_of<C>(width, [&](Index d) {
      return b.dcorrected[i * width + d] * m.corrected[j * width + d];
    });
  });
  __syncthreads();
}

// Takes the gradient of the state from behind the chunk to its front.
template <class T, class C>
__device__ void carry_back(const Place& p, Index value, const T* q, const T* k, const T* dy, C scale,
                           const ChunkMatrices<C>& m, const C* dread, C* carried) {
  const Index n = p.count, width = p.of.value;
  const C kept = m.seen[n - 1];
  each(p.of.key, width, [&](Index c, Index d) {
    C sum = kept * carried[c * width + d];
    for (Index i = 0; i < n; ++i)
      sum += scale * load(q + p.key(i, c)) * m.seen[i] * load(dy + p.value(i, value, d)) -
             load(k + p.key(i, c)) * dread[i * width + d];
    carried[c * width + d] = sum;
  });
  __syncthreads();
}

// Begins the gradients of decays and shares, row by row, and writes those of values.
template <class T, class C>
__device__ void weigh_back(const DeltaRuleBackward<T>& call, const Place& p, Index value,
                           const BackwardMatrices<C>& b) {
  const Index n = p.count, width = p.of.value;
  const ChunkMatrices<C>& m = b.chunk;
  each(n, [&](Index i) {
    C sum = 0, share = 0;
    for (Index d = 0; d < width; ++d) {
      const C right = b.dcorrected[i * width + d], dread = m.share[i] * m.seen[i] * right;
      share += right * b.wanted[i * width + d];
      sum -= dread * b.read[i * width + d];
      b.dread[i * width + d] = dread;
      store(call.dv + p.value(i, value, d), m.share[i] * right);
    }
    for (Index j = 0; j < n; ++j) {
      const Index own = i * n + j, other = j * n + i;
      sum += b.slope[own] * m.at[own] + b.debt[own] * m.below[own];
      sum -= b.slope[other] * m.at[other] + b.debt[other] * m.below[other];
      share += b.debt[own] * m.decay[own] * b.keys[own];
    }
    b.dsums[i] = sum;
    b.dshare[i] = share;
  });
  __syncthreads();
  each(n * n, [&](Index i) {
    b.slope[i] *= m.decay[i];
    b.debt[i] *= m.decay[i];
  });
  __syncthreads();
}

// Adds what queries read of the state in front to dq, and what keys leave in that behind and read of that in
// front to dk.
template <class T, class C>
__device__ void read_back(const DeltaRuleBackward<T>& call, const Place& p, Index value, C scale,
                          const C* state, const C* carried, const BackwardMatrices<C>& b, C* partial) {
  const Index n = p.count, width = p.of.value, key = p.of.key;
  const ChunkMatrices<C>& m = b.chunk;
  const auto rows = [&](const T* of, Index i) {
    return sum_of<C>(key, [&](Index c) { return load(of + p.key(i, c)) * b.wide[i * key + c]; });
  };
  each(n, key, [&](Index i, Index c) {
    const C add = scale * m.seen[i] * sum_of<C>(width, [&](Index d) {
                    return load(call.dy + p.value(i, value, d)) * state[c * width + d];
                  });
    b.wide[i * key + c] = add;
    b.dq[i * key + c] += add;
  });
  C part = 0;
  each(key * width, [&](Index i) { part += state[i] * carried[i]; });
  partial[threadIdx.x] = part;
  __syncthreads();
  each(n, [&](Index i) { b.dsums[i] += rows(call.q, i); });
  __syncthreads();
  each(n, key, [&](Index i, Index c) {
    const C add = m.left[i] * sum_of<C>(width, [&](Index d) {
                    return m.corrected[i * width + d] * carried[c * width + d];
                  });
    b.wide[i * key + c] = add;
    b.dk[i * key + c] +=
        add - sum_of<C>(width, [&](Index d) { return b.dread[i * width + d] * state[c * width + d]; });
  });
  __syncthreads();
  if (threadIdx.x == 0) {
    C all = m.seen[n - 1] * sum_of<C>(blockDim.x, [&](Index i) { return partial[i]; });
    for (Index i = 0; i < n; ++i) {
      const C left = rows(call.k, i);
      b.dsums[i] -= left;
      all += left;
    }
    b.dsums[n - 1] += all;
    C sum = 0;
    for (Index i = n - 1; i >= 0; --i) {
      sum += b.dsums[i];
      call.dg[p.gate(i, value)] = sum;
      call.dbeta[p.gate(i, value)] = b.dshare[i];
    }
  }
  __syncthreads();
}

template <class T, class C = Compute<T>>
__device__ void take_back(const DeltaRuleBackward<T>& call, const Place& p, Index value, C scale,
                          const C* state, C* carried, const BackwardMatrices<C>& b, C* partial) {
  const Index n = p.count, key = p.of.key;
  const ChunkMatrices<C>& m = b.chunk;
  set_decays(p, value, call.g, call.beta, m);
  set_weights(p, call.q, call.k, scale, m);
  correct(p, value, call.k, call.v, state, m, b.read, b.wanted);
  solve_carried(p, value, call.k, call.dy, carried, m, b.dcorrected);
  weigh_corrections(call, p, value, b);
  weigh_back(call, p, value, b);
  read_back(call, p, value, scale, state, carried, b, partial);
  each(n, key, [&](Index i, Index c) {
    C dq = 0, dk = 0;
    for (Index j = 0; j < n; ++j) {
      const C other = load(call.k + p.key(j, c));
      if (j <= i) dq += b.slope[i * n + j] * other;
      if (j >= i) dk += scale * b.slope[j * n + i] * load(call.q + p.key(j, c));
      if (j < i) dk += m.share[i] * b.debt[i * n + j] * other;
      if (j > i) dk += m.share[j] * b.debt[j * n + i] * other;
    }
    b.dq[i * key + c] += scale * dq;
    b.dk[i * key + c] += dk;
  });
  carry_back(p, value, call.q, call.k, call.dy, scale, m, b.dread, carried);
}

// Computes the states in front of all chunks of a key head's run.
template <class T, class C = Compute<T>>
__device__ void scan_states(const DeltaRuleBackward<T>& call, Index head, Index run, C scale,
                            const BackwardMatrices<C>& b) {
  const DeltaRuleSizes& of = call.sizes;
  const Index matrix = of.key * of.value, all = of.values * matrix;
  const C* const start = states_of(of, call.starts, head, run);
  each(all, [&](Index i) { b.states[i] = start ? start[i] : C(0); });
  each_chunk(of, head, run, false, [&](const Place& p, Index number) {
    if (number + 1 == of.chunks()) return;
    C* const next = b.states + (number + 1) * all;
    __syncthreads();
    each(all, [&](Index i) { next[i] = b.states[number * all + i]; });
    for (Index value = 0; value < of.values; ++value) {
      set_decays(p, value, call.g, call.beta, b.chunk);
      set_weights(p, call.q, call.k, scale, b.chunk);
      correct(p, value, call.k, call.v, next + value * matrix, b.chunk, static_cast<C*>(nullptr),
              static_cast<C*>(nullptr));
      move_state(p, call.k, next + value * matrix, b.chunk);
    }
  });
}

template <class T, class C = Compute<T>>
__global__ __launch_bounds__(block_threads) void delta_rule_grad_kernel(DeltaRuleBackward<T> call, C scale,
                                                                        Index share) {
  __shared__ C partial[block_threads];
  const DeltaRuleSizes& of = call.sizes;
  const Index matrix = of.key * of.value, all = of.values * matrix;
  Room<C> room{static_cast<C*>(call.workspace) + blockIdx.x * share};
  const BackwardMatrices<C> b(room, of);
  for (Index item = blockIdx.x; item < of.batch * of.heads * of.own_runs(); item += gridDim.x) {
    const Index head = item / of.own_runs(), run = item % of.own_runs();
    scan_states(call, head, run, scale, b);
    const C* const end = states_of(of, call.ends, head, run);
    each(all, [&](Index i) { b.carried[i] = end ? end[i] : C(0); });
    each_chunk(of, head, run, true, [&](const Place& p, Index number) {
      each(p.count * of.key, [&](Index i) { b.dq[i] = b.dk[i] = 0; });
      __syncthreads();
      for (Index value = 0; value < of.values; ++value)
        take_back(call, p, value, scale, b.states + number * all + value * matrix, b.carried + value * matrix,
                  b, partial);
      each(p.count, of.key, [&](Index i, Index c) {
        store(call.dq + p.key(i, c), b.dq[i * of.key + c]);
        store(call.dk + p.key(i, c), b.dk[i * of.key + c]);
      });
      __syncthreads();
    });
  }
}

// ---------------------------------------------------------------- what runs make of states

// Holds what a chunk has of columns that are as wide as keys or as values.
template <class C>
struct MapMatrices {
  ChunkMatrices<C> chunk;
  C *dcorrected, *dread;

  constexpr MapMatrices(Room<C>& room, const DeltaRuleSizes& of) : chunk(room, wide(of)) {
    for (C** to : {&dcorrected, &dread}) *to = room.take(of.chunk * of.value);
  }

 private:
  static constexpr DeltaRuleSizes wide(DeltaRuleSizes of) {
    if (of.value < of.key) of.value = of.key;
    return of;
  }
};

// Takes the columns of 1, to which nothing is added, to M, and zeros to E.
template <class T, class C = Compute<T>>
__device__ void map_forward(const DeltaMaps<T>& call, Index head, Index value, Index run, C* to,
                            const ChunkMatrices<C>& m) {
  const DeltaRuleSizes& of = call.sizes;
  const Index square = of.key * of.key;
  constexpr C* none = nullptr;
  each(square + of.key * of.value,
       [&](Index i) { to[i] = i < square && i / of.key == i % of.key ? C(1) : C(0); });
  each_chunk(of, head, run, false, [&](const Place& p, Index) {
    Place squares = p;
    squares.of.value = of.key;
    set_decays(p, value, call.g, call.beta, m);
    set_weights(p, static_cast<const T*>(nullptr), call.k, C(0), m);
    correct(squares, value, call.k, static_cast<const T*>(nullptr), to, m, none, none);
    move_state(squares, call.k, to, m);
    correct(p, value, call.k, call.v, to + square, m, none, none);
    move_state(p, call.k, to + square, m);
  });
}

// Takes zeros behind the run to B in front of it.
template <class T, class C = Compute<T>>
__device__ void map_backward(const DeltaMaps<T>& call, Index head, Index value, Index run, C scale, C* to,
                             const MapMatrices<C>& b) {
  const DeltaRuleSizes& of = call.sizes;
  const ChunkMatrices<C>& m = b.chunk;
  each(of.key * of.value, [&](Index i) { to[i] = 0; });
  each_chunk(of, head, run, true, [&](const Place& p, Index) {
    set_decays(p, value, call.g, call.beta, m);
    set_weights(p, call.q, call.k, scale, m);
    solve_carried(p, value, call.k, call.dy, to, m, b.dcorrected);
    each(p.count, of.value, [&](Index i, Index d) {
      b.dread[i * of.value + d] = m.share[i] * m.seen[i] * b.dcorrected[i * of.value + d];
    });
    __syncthreads();
    carry_back(p, value, call.q, call.k, call.dy, scale, m, b.dread, to);
  });
}

template <class T, class C = Compute<T>>
__global__ __launch_bounds__(block_threads) void delta_maps_kernel(DeltaMaps<T> call, C scale, Index share) {
  const DeltaRuleSizes& of = call.sizes;
  Room<C> room{static_cast<C*>(call.workspace) + blockIdx.x * share};
  const MapMatrices<C> b(room, of);
  for (Index item = blockIdx.x; item < of.batch * of.heads * of.own_runs() * of.values; item += gridDim.x) {
    const Index value = item % of.values, run = item / of.values % of.own_runs(),
                head = item / of.values / of.own_runs();
    C* const to =
        call.maps +
        (((head / of.heads * of.own_runs() + run) * of.heads + head % of.heads) * of.values + value) *
            call.width;
    map_forward(call, head, value, run, to, b.chunk);
    if (call.dy) map_backward(call, head, value, run, scale, to + of.key * (of.key + of.value), b);
  }
}

constexpr Index start_columns = 32;  // of a block

// Puts the maps of a value head's runs together, one after the other. Columns of states do not meet.
template <class C>
__global__ __launch_bounds__(block_threads) void delta_starts_kernel(DeltaStartsSizes of, const C* maps,
                                                                     C* starts) {
  const Index sample = blockIdx.x / of.heads, head = blockIdx.x % of.heads, from = blockIdx.y * start_columns,
              left = of.value - from, columns = left < start_columns ? left : start_columns;
  const auto at = [&](Index run) { return (sample * of.runs + run) * of.heads + head; };
  const Index first = of.back ? of.runs - 1 : 0, step = of.back ? -1 : 1;
  const C* before = nullptr;
  for (Index i = 0; i < of.runs; ++i) {
    C* const to = starts + at(first + i * step) * of.key * of.value + from;
    const C* const moved = i > 0 ? maps + at(first + (i - 1) * step) * of.width : nullptr;
    const Index added = of.key * (of.key + (of.back ? of.value : 0)) + from;
    each(of.key, columns, [&](Index r, Index d) {
      C sum = moved ? moved[added + r * of.value + d] : C(0);
      for (Index c = 0; moved && c < of.key; ++c)
        sum += moved[of.back ? c * of.key + r : r * of.key + c] * before[c * of.value + d];
      to[r * of.value + d] = sum;
    });
    __syncthreads();
    before = to;
  }
}

// ---------------------------------------------------------------- some positions at a time

// Moves a column of a state on by a position; `recent` has the position's key, and `own` its value, decay and
// share.
template <class C>
__device__ void learn(const DeltaState& of, const C* recent, const C* own, Index d, C* state) {
  const C kept = exp_of<C>(own[of.value]);
  C wanted = own[d];
  for (Index c = 0; c < of.key; ++c) {
    state[c * of.value + d] *= kept;
    wanted -= recent[c] * state[c * of.value + d];
  }
  wanted *= own[of.value + 1];
  for (Index c = 0; c < of.key; ++c) state[c * of.value + d] += recent[c] * wanted;
}

// A thread has columns of its own in all states, so that it waits for others only where keys change.
template <class T, class C = Compute<T>>
__global__ __launch_bounds__(block_threads) void delta_rule_at_kernel(DeltaRuleAt<T> call, C scale) {
  const DeltaRuleSizes& of = call.sizes;
  const DeltaState layout = of.state();
  const Index head = blockIdx.x, position = static_cast<Index>(*call.position);
  const Place p{of, head / of.heads, head % of.heads, 0, of.seq};
  C *const kept = call.kept + head * layout.numbers(), *const state = call.state + head * layout.numbers();
  const Index passed = position - static_cast<Index>(kept[layout.first()]);
  const bool reached = position == 0 || (passed >= 0 && passed <= recent_positions);
  each(of.values, of.value, [&](Index value, Index d) {
    C* const own = kept + layout.matrix(value);
    for (Index c = 0; c < of.key && (position == 0 || !reached); ++c)
      own[c * of.value + d] = reached ? C(0) : static_cast<C>(NAN);
    for (Index i = 0; position > 0 && reached && i < passed; ++i) {
      const C* const recent = kept + layout.recent(i);
      learn(layout, recent, recent + layout.of_value(value), d, own);
    }
  });
  __syncthreads();
  each(of.seq, of.key, [&](Index i, Index c) { kept[layout.recent(i) + c] = load(call.k + p.key(i, c)); });
  each(of.seq, of.values, [&](Index i, Index value) {
    C* const own = kept + layout.recent(i) + layout.of_value(value);
    for (Index d = 0; d < of.value; ++d) own[d] = load(call.v + p.value(i, value, d));
    own[of.value] = call.g[p.gate(i, value)];
    own[of.value + 1] = call.beta[p.gate(i, value)];
  });
  if (threadIdx.x == 0) kept[layout.first()] = static_cast<C>(position);
  __syncthreads();
  each(layout.numbers(), [&](Index i) { state[i] = kept[i]; });
  __syncthreads();
  each(of.values, of.value, [&](Index value, Index d) {
    C* const own = state + layout.matrix(value);
    for (Index i = 0; i < of.seq; ++i) {
      const C* const recent = kept + layout.recent(i);
      learn(layout, recent, recent + layout.of_value(value), d, own);
      store(call.y + p.value(i, value, d), scale * sum_of<C>(of.key, [&](Index c) {
                                             return load(call.q + p.key(i, c)) * own[c * of.value + d];
                                           }));
    }
  });
}

// ---------------------------------------------------------------- launches

template <class C, class Matrices>
Index share_of(const DeltaRuleSizes& sizes) {
  Room<C> room{nullptr};
  const Matrices counted(room, sizes);
  return room.count;
}

// Runs have no result to keep their state in.
template <class C>
Index forward_share(const DeltaRuleSizes& sizes) {
  return share_of<C, ChunkMatrices<C>>(sizes) + (sizes.all_runs > 0 ? sizes.key * sizes.value : 0);
}

Index blocks_of_keys(const DeltaRuleSizes& s) {
  return std::min(most_blocks, s.batch * s.heads * s.own_runs());
}
Index blocks_of_values(const DeltaRuleSizes& s) {
  return std::min(most_blocks, s.batch * s.heads * s.own_runs() * s.values);
}

template <class C>
C scale_of(const DeltaRuleSizes& sizes) {
  return static_cast<C>(1.0 / std::sqrt(static_cast<double>(sizes.key)));
}

template <class T>
bool on_tensor_cores(const DeltaRuleSizes& sizes) {
  return std::is_same_v<T, bf16> && tensor_delta_takes(sizes);
}

}  // namespace

template <class T>
std::int64_t delta_rule_workspace(const DeltaRuleSizes& sizes) {
  const Index special = on_tensor_cores<T>(sizes) ? tensor_delta_workspace(sizes) : 0;
  return std::max(special, blocks_of_values(sizes) * forward_share<Compute<T>>(sizes) *
                               static_cast<Index>(sizeof(Compute<T>)));
}

template <class T>
std::int64_t delta_rule_backward_workspace(const DeltaRuleSizes& sizes) {
  const Index special = on_tensor_cores<T>(sizes) ? tensor_delta_backward_workspace(sizes) : 0;
  return std::max(special, blocks_of_keys(sizes) * share_of<Compute<T>, BackwardMatrices<Compute<T>>>(sizes) *
                               static_cast<Index>(sizeof(Compute<T>)));
}

template <class T>
std::int64_t delta_maps_workspace(const DeltaRuleSizes& sizes) {
  return blocks_of_values(sizes) * share_of<Compute<T>, MapMatrices<Compute<T>>>(sizes) *
         static_cast<Index>(sizeof(Compute<T>));
}

template <class T>
void delta_rule(const DeltaRuleForward<T>& call, Stream stream) {
  const DeltaRuleSizes& s = call.sizes;
  if constexpr (std::is_same_v<T, bf16>)
    if (tensor_delta_takes(s) && tensor_delta(call, stream)) return;
  const Index blocks = blocks_of_values(s), share = forward_share<Compute<T>>(s);
  delta_rule_kernel<T><<<grid_of(blocks), block_threads, 0, stream>>>(call, scale_of<Compute<T>>(s), share);
  check_launch("delta_rule");
}

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& call, Stream stream) {
  const DeltaRuleSizes& s = call.sizes;
  if constexpr (std::is_same_v<T, bf16>)
    if (tensor_delta_takes(s) && tensor_delta_backward(call, stream)) return;
  const Index blocks = blocks_of_keys(s), share = share_of<Compute<T>, BackwardMatrices<Compute<T>>>(s);
  delta_rule_grad_kernel<T>
      <<<grid_of(blocks), block_threads, 0, stream>>>(call, scale_of<Compute<T>>(s), share);
  check_launch("delta_rule_grad");
}

template <class T>
void delta_rule_at(const DeltaRuleAt<T>& call, Stream stream) {
  const DeltaRuleSizes& s = call.sizes;
  delta_rule_at_kernel<T>
      <<<grid_of(s.batch * s.heads), block_threads, 0, stream>>>(call, scale_of<Compute<T>>(s));
  check_launch("delta_rule_at");
}

template <class T>
void delta_maps(const DeltaMaps<T>& call, Stream stream) {
  const DeltaRuleSizes& s = call.sizes;
  const Index blocks = blocks_of_values(s), share = share_of<Compute<T>, MapMatrices<Compute<T>>>(s);
  delta_maps_kernel<T><<<grid_of(blocks), block_threads, 0, stream>>>(call, scale_of<Compute<T>>(s), share);
  check_launch("delta_maps");
}

template <class C>
void delta_starts(const DeltaStartsSizes& s, const C* maps, C* starts, Stream stream) {
  delta_starts_kernel<C><<<dim3(grid_of(s.batch * s.heads), grid_of(ceil_div(s.value, start_columns))),
                           block_threads, 0, stream>>>(s, maps, starts);
  check_launch("delta_starts");
}

template void delta_starts(const DeltaStartsSizes&, const double*, double*, Stream);
template void delta_starts(const DeltaStartsSizes&, const float*, float*, Stream);

#define PRUN_DELTA_RULE(T)                                                       \
  template std::int64_t delta_rule_workspace<T>(const DeltaRuleSizes&);          \
  template std::int64_t delta_rule_backward_workspace<T>(const DeltaRuleSizes&); \
  template void delta_rule(const DeltaRuleForward<T>&, Stream);                  \
  template void delta_rule_backward(const DeltaRuleBackward<T>&, Stream);        \
  template std::int64_t delta_maps_workspace<T>(const DeltaRuleSizes&);          \
  template void delta_maps(const DeltaMaps<T>&, Stream);                         \
  template void delta_rule_at(const DeltaRuleAt<T>&, Stream);
PRUN_DELTA_RULE(double)
PRUN_DELTA_RULE(float)
PRUN_DELTA_RULE(bf16)
PRUN_DELTA_RULE(f16)
#undef PRUN_DELTA_RULE

}  // namespace prun::cuda
