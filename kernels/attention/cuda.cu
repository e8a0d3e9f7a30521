// Computes scores of one tile of queries and one tile of keys at a time. Forward keeps a running maximum and
// sum of each query; backward computes the weights again from lse, once for the gradients of a tile of
// queries and once for those of a tile of keys, which take in their group's queries in order.
#include "attention/cuda.hpp"

#include <cmath>

#include "attention/cuda_tiles.cuh"
#include "cuda/drop_draws.cuh"
#include "cuda/math.cuh"
#include "prun/sequence_order.hpp"

namespace prun::cuda {
namespace {

using namespace attention_tiles;

template <class T, int W>
using ForwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 2), W>;
template <class T, int W>
using BackwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 4), W>;

// Says which keys a query may see: those up to its own; with `late` perhaps not the first keys, since
// documents are kept apart or there is a window; `across` is for queries of some positions, late or not.
enum class Seen { all_before, late, across };

// Returns the position of a query by its row.
template <Seen seen>
__device__ std::int64_t position_of(const AttentionShape& shape, std::int64_t row) {
  if constexpr (seen == Seen::across)
    return SequenceOrder{shape.chunk, shape.chunks}.position(shape.first + row);
  else
    return row;
}

template <Seen seen>
__device__ std::int64_t keys_of(const AttentionShape& shape) {
  return seen == Seen::across ? shape.keys : shape.seq;
}

template <Seen seen>
__device__ bool visible(const AttentionShape& shape, std::int64_t position, std::int64_t key) {
  const std::int64_t behind = shape.causal ? 1 : shape.window;  // 0: all
  return key < keys_of<seen>(shape) && (behind == 0 || key < position + behind);
}

template <Seen seen, class Call>
__device__ int first_seen(const Call& call, std::int64_t batch, std::int64_t row) {
  if constexpr (seen != Seen::across) return first_key<seen == Seen::late>(call, batch, row);
  if (row >= call.shape.seq) return 0;
  return first_key_at(call, batch, row, position_of<seen>(call.shape, row));
}

// These return the first key of the tiles in which queries from `first` on see any key, and the end of the
// keys that queries up to `last` see.
template <int rows, Seen seen, class Call>
__device__ std::int64_t first_tile(const Call& call, std::int64_t batch, std::int64_t first) {
  return first_seen<seen>(call, batch, first) / rows * rows;
}
template <Seen seen>
__device__ std::int64_t end_of_keys(const AttentionShape& shape, std::int64_t last) {
  if constexpr (seen == Seen::all_before) return keys_end(shape, last);
  const std::int64_t keys = keys_of<seen>(shape), behind = shape.causal ? 1 : shape.window;
  if (behind == 0) return keys;
  const std::int64_t end = position_of<seen>(shape, last < shape.seq ? last : shape.seq - 1) + behind;
  return end < keys ? end : keys;
}

// Has all weights stay.
struct NoDrops {
  template <class Tiles, class C>
  __device__ void draw(const AttentionShape&, const Unit&, std::int64_t, std::int64_t, C*, int, int) const {}
  template <class Tiles, class C>
  __device__ void apply(const C*, typename Tiles::Scores&) const {}
};

// Drops weights: those of a tile are multiplied by factors, which are drawn into shared memory. A thread
// draws those of four neighbouring keys at once.
template <class C>
struct Drops {
  AttentionDraws draws;
  DropChance<C> chance;

  // Draws the factors of a tile's queries from `first` on, and of its keys from `key` on, into a tile of
  // scores with such strides.
  template <class Tiles>
  __device__ void draw(const AttentionShape& shape, const Unit& unit, std::int64_t first, std::int64_t key,
                       C* tile, int query_stride, int key_stride) const {
    const int query = static_cast<int>(threadIdx.x) % Tiles::rows;
    const std::int64_t row = first + query < shape.seq ? first + query : shape.seq - 1;
    const DropRow drawn(*draws.seed, draws.samples[unit.batch],
                        shape.from + position_of<Seen::across>(shape, row),
                        draws.place + static_cast<std::uint32_t>(unit.head * shape.queries + unit.query));
    // Words come in fours from a multiple of 4 on, where the first key may not be.
    const std::int64_t position = shape.from + key;
    const int before = static_cast<int>(position % 4);
    for (int column = static_cast<int>(threadIdx.x) / Tiles::rows * 4 - before; column < Tiles::rows;
         column += threads / Tiles::rows * 4) {
      const PhiloxBlock block = drawn.draw((position + column) / 4);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (column + e >= 0 && column + e < Tiles::rows)
          tile[query * query_stride + (column + e) * key_stride] =
              chance.stays(block.word[e]) ? chance.scale : C(0);
    }
  }

  // Multiplies a thread's scores by their factors, which it may overwrite then: no other thread reads them.
  template <class Tiles>
  __device__ void apply(const C* tile, typename Tiles::Scores& scores) const {
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j)
        scores[i][j] *= tile[Tiles::row(i) * Tiles::score_pitch + Tiles::score_column(j)];
  }
};

// Holds the softmax of each of a thread's rows, over the keys folded in so far.
template <class T, class Tiles, Seen seen>
struct Softmax {
  using C = Compute<T>;
  static constexpr bool apart = seen != Seen::all_before;
  C largest[Tiles::per_thread], sum[Tiles::per_thread];
  int first[Tiles::per_thread];  // the first key that the row sees
  std::int64_t position[Tiles::per_thread];

  template <class Call>
  __device__ Softmax(const Call& call, std::int64_t batch, std::int64_t query) {
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      largest[i] = -INFINITY, sum[i] = 0;
      first[i] = first_seen<seen>(call, batch, query + Tiles::row(i));
      position[i] = position_of<seen>(call.shape, query + Tiles::row(i));
    }
  }

  // Turns scores into weights relative to the new maximum; the result so far shrinks to match.
  __device__ void fold(const AttentionShape& shape, std::int64_t key, typename Tiles::Scores& scores,
                       typename Tiles::Sums& result) {
    const C scale = scale_of<C>(shape);
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      C top = largest[i], added = 0;
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) {
        const std::int64_t at = key + Tiles::score_column(j);
        const bool is_seen = visible<seen>(shape, position[i], at) && (!apart || at >= first[i]);
        scores[i][j] = is_seen ? bounded(shape, scale * scores[i][j]).value : C(-INFINITY);
        top = Larger()(top, scores[i][j]);
      }
      top = row_fold(top, Larger());
      const C base = apart && top == C(-INFINITY) ? C(0) : top;  // serves a row that has seen nothing yet
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) added += scores[i][j] = exp_of<T>(scores[i][j] - base);
      const C shrink = exp_of<T>(largest[i] - base);
      sum[i] = sum[i] * shrink + row_fold(added, Add());
      largest[i] = top;
#pragma unroll
      for (int c = 0; c < Tiles::packs; ++c)
#pragma unroll
        for (int e = 0; e < lanes<C>; ++e) result[i][c][e] *= shrink;
    }
  }
};

// A block takes a tile of one head's queries, the costliest of a causal mask first.
template <class Tiles, Seen seen, class T, class D>
__global__ __launch_bounds__(threads) void forward_kernel(const __grid_constant__ AttentionForward<T> call,
                                                          D drops, std::int64_t units, bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const AttentionShape of_keys = shape_of_keys(shape);
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *kv = Tiles::tile(1), *weights = Tiles::tile(2);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  Softmax<T, Tiles, seen> softmax(call, unit.batch, first);
  typename Tiles::Sums result;
  Tiles::clear(result);
  const std::int64_t end = end_of_keys<seen>(shape, first + Tiles::rows - 1);
  for (std::int64_t key = first_tile<Tiles::rows, seen>(call, unit.batch, first); key < end;
       key += Tiles::rows) {
    __syncthreads();
    load_tile<Tiles>(rows_of(call.k, unit.batch, unit.head), key, of_keys, packed, kv);
    drops.template draw<Tiles>(shape, unit, first, key, weights, Tiles::score_pitch, 1);
    __syncthreads();
    typename Tiles::Scores scores;
    Tiles::dot_rows(q, kv, scores);
    softmax.fold(shape, key, scores, result);
    drops.template apply<Tiles>(weights, scores);
    Tiles::store_scores(scores, weights);
    __syncthreads();
    load_tile<Tiles>(rows_of(call.v, unit.batch, unit.head), key, of_keys, packed, kv);
    __syncthreads();
    Tiles::add_product(weights, kv, result);
  }
  store_sums<Tiles>(result, rows_of(call.y, unit, shape.head_dim), first, shape, packed,
                    [&](int i) { return C(1) / softmax.sum[i]; });
  if (Tiles::x() > 0) return;
  C* lse = call.lse + unit.statistics(shape);
#pragma unroll
  for (int i = 0; i < Tiles::per_thread; ++i)
    if (first + Tiles::row(i) < shape.seq)
      lse[first + Tiles::row(i)] = softmax.largest[i] + log(softmax.sum[i]);
}

template <class Tiles, Seen seen, class T, class D>
__global__ __launch_bounds__(threads) void dq_kernel(const __grid_constant__ AttentionBackward<T> call,
                                                     D drops, const Compute<T>* delta, std::int64_t units,
                                                     bool packed) {
  using C = Compute<T>;
  constexpr bool apart = seen != Seen::all_before;
  const AttentionShape& shape = call.shape;
  const AttentionShape of_keys = shape_of_keys(shape);
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *dy = Tiles::tile(1), *k = Tiles::tile(2), *v = Tiles::tile(3),
    *dscores = Tiles::tile(4);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  load_tile<Tiles>(rows_of(call.dy, unit, shape.head_dim), first, shape, packed, dy);
  C lse_of[Tiles::per_thread], delta_of[Tiles::per_thread];
  int first_of[Tiles::per_thread];
  std::int64_t position_at[Tiles::per_thread];
#pragma unroll
  for (int i = 0; i < Tiles::per_thread; ++i) {
    const std::int64_t position = first + Tiles::row(i);
    const bool there = position < shape.seq;
    lse_of[i] = there ? call.lse[unit.statistics(shape) + position] : C(0);
    delta_of[i] = there ? delta[unit.statistics(shape) + position] : C(0);
    first_of[i] = first_seen<seen>(call, unit.batch, position);
    position_at[i] = position_of<seen>(shape, position);
  }
  const C scale = scale_of<C>(shape);
  typename Tiles::Sums dq;
  Tiles::clear(dq);
  const std::int64_t end = end_of_keys<seen>(shape, first + Tiles::rows - 1);
  for (std::int64_t key = first_tile<Tiles::rows, seen>(call, unit.batch, first); key < end;
       key += Tiles::rows) {
    __syncthreads();
    load_tile<Tiles>(rows_of(call.k, unit.batch, unit.head), key, of_keys, packed, k);
    load_tile<Tiles>(rows_of(call.v, unit.batch, unit.head), key, of_keys, packed, v);
    drops.template draw<Tiles>(shape, unit, first, key, dscores, Tiles::score_pitch, 1);
    __syncthreads();
    typename Tiles::Scores scores, dweights;
    Tiles::dot_rows(q, k, scores);
    Tiles::dot_rows(dy, v, dweights);
    drops.template apply<Tiles>(dscores, dweights);
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) {
        const std::int64_t at = key + Tiles::score_column(j);
        const bool is_seen = visible<seen>(shape, position_at[i], at) && (!apart || at >= first_of[i]);
        const Score<C> score = bounded(shape, scale * scores[i][j]);
        const C weight = exp_of<T>(score.value - lse_of[i]);
        scores[i][j] = is_seen ? weight * (dweights[i][j] - delta_of[i]) * score.slope : C(0);
      }
    Tiles::store_scores(scores, dscores);
    __syncthreads();
    Tiles::add_product(dscores, k, dq);
  }
  store_sums<Tiles>(dq, rows_of(call.dq, unit, shape.head_dim), first, shape, packed,
                    [&](int) { return scale; });
}

// A block takes a tile of one head's keys and values; its scores lie [key, query].
template <class Tiles, Seen seen, class T, class D>
__global__ __launch_bounds__(threads) void dkv_kernel(const __grid_constant__ AttentionBackward<T> call,
                                                      D drops, const Compute<T>* delta, std::int64_t groups,
                                                      bool packed) {
  using C = Compute<T>;
  constexpr bool apart = seen != Seen::all_before;
  const AttentionShape& shape = call.shape;
  const AttentionShape of_keys = shape_of_keys(shape);
  const std::int64_t group = blockIdx.x % groups, first = blockIdx.x / groups * Tiles::rows;
  C *k = Tiles::tile(0), *v = Tiles::tile(1), *q = Tiles::tile(2), *dy = Tiles::tile(3),
    *scratch = Tiles::tile(4);
  const std::int64_t batch = group / shape.heads, head = group % shape.heads;
  load_tile<Tiles>(rows_of(call.k, batch, head), first, of_keys, packed, k);
  load_tile<Tiles>(rows_of(call.v, batch, head), first, of_keys, packed, v);
  const C scale = scale_of<C>(shape);
  typename Tiles::Sums dk, dv;
  Tiles::clear(dk), Tiles::clear(dv);
  for (std::int64_t j = 0; j < shape.queries; ++j) {
    const Unit unit(shape, group * shape.queries + j);
    const C *lse = call.lse + unit.statistics(shape), *deltas = delta + unit.statistics(shape);
    for (std::int64_t query = shape.causal && seen != Seen::across ? first : 0;
         query < shape.seq && (!apart || first_tile<Tiles::rows, seen>(call, batch, query) <= first);
         query += Tiles::rows) {
      if (apart && end_of_keys<seen>(shape, query + Tiles::rows - 1) <= first) continue;
      __syncthreads();
      load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), query, shape, packed, q);
      load_tile<Tiles>(rows_of(call.dy, unit, shape.head_dim), query, shape, packed, dy);
      drops.template draw<Tiles>(shape, unit, query, first, scratch, 1, Tiles::score_pitch);
      __syncthreads();
      typename Tiles::Scores weights, dweights;
      Tiles::dot_rows(k, q, weights);
      Tiles::dot_rows(v, dy, dweights);
      drops.template apply<Tiles>(scratch, dweights);
#pragma unroll
      for (int c = 0; c < Tiles::per_thread; ++c) {
        const std::int64_t position = query + Tiles::score_column(c);
        const bool there = position < shape.seq;
        const C lse_of = there ? lse[position] : C(0), delta_of = there ? deltas[position] : C(0);
        const int first_of = first_seen<seen>(call, batch, position);
        const std::int64_t position_at = position_of<seen>(shape, position);
#pragma unroll
        for (int i = 0; i < Tiles::per_thread; ++i) {
          const std::int64_t at = first + Tiles::row(i);
          const bool is_seen = there && visible<seen>(shape, position_at, at) && (!apart || at >= first_of);
          const Score<C> score = bounded(shape, scale * weights[i][c]);
          weights[i][c] = is_seen ? exp_of<T>(score.value - lse_of) : C(0);
          dweights[i][c] = is_seen ? weights[i][c] * (dweights[i][c] - delta_of) * score.slope : C(0);
        }
      }
      drops.template apply<Tiles>(scratch, weights);
      Tiles::store_scores(weights, scratch);
      __syncthreads();
      Tiles::add_product(scratch, dy, dv);
      __syncthreads();
      Tiles::store_scores(dweights, scratch);
      __syncthreads();
      Tiles::add_product(scratch, q, dk);
    }
  }
  store_sums<Tiles>(dk, rows_of(call.dk, batch, head), first, of_keys, packed, [&](int) { return scale; });
  store_sums<Tiles>(dv, rows_of(call.dv, batch, head), first, of_keys, packed, [](int) { return C(1); });
}

// ---------------------------------------------------------------- the host's side
template <Seen seen>
using SeenBy = std::integral_constant<Seen, seen>;

// Calls launch(call, width, what is seen, what is dropped), the second and third as types. Kernels that drop
// weights take queries of any positions: those of all are some, too.
template <class T, class Call, class Launch>
void with_form(const Call& given, Launch launch) {
  using C = Compute<T>;
  Call call = given;
  if (call.shape.p > 0) call.shape.keys = shape_of_keys(call.shape).seq;
  with_width(call.shape, [&](auto width) {
    if (call.shape.p > 0)
      launch(call, width, SeenBy<Seen::across>(), Drops<C>{call.draws, DropChance<C>(call.shape.p)});
    else if (call.shape.across())
      launch(call, width, SeenBy<Seen::across>(), NoDrops());
    else if (begins_late(call))
      launch(call, width, SeenBy<Seen::late>(), NoDrops());
    else
      launch(call, width, SeenBy<Seen::all_before>(), NoDrops());
  });
}

}  // namespace

template <class T>
void attention(const AttentionForward<T>& given, Stream stream) {
  if (given.shape.query_rows() == 0) return;
  with_form<T>(given, [&]<int W, Seen seen, class D>(const AttentionForward<T>& call,
                                                     std::integral_constant<int, W>, SeenBy<seen>, D drops) {
    using Form = ForwardTiles<T, W>;
    const AttentionShape& shape = call.shape;
    const std::int64_t units = shape.batch * shape.heads * shape.queries;
    const bool packed = packs<T>(shape, call.q, call.k, call.v, call.y);
    const auto kernel = forward_kernel<Form, seen, T, D>;
    const int shared = take_shared<Form>(kernel, 2, "shared memory for attention");
    kernel<<<tiles_of<Form>(shape.seq, units), threads, shared, stream>>>(call, drops, units, packed);
  });
  check_launch("attention");
}

template <class T>
void attention_backward(const AttentionBackward<T>& given, Stream stream) {
  if (given.shape.query_rows() == 0) return;
  auto* delta = static_cast<Compute<T>*>(given.workspace);
  with_form<T>(given, [&]<int W, Seen seen, class D>(const AttentionBackward<T>& call,
                                                     std::integral_constant<int, W>, SeenBy<seen>, D drops) {
    using Form = BackwardTiles<T, W>;
    const AttentionShape& shape = call.shape;
    const std::int64_t groups = shape.batch * shape.heads, units = groups * shape.queries;
    const bool packed = packs<T>(shape, call.dy, call.q, call.k, call.v, call.dq, call.dk, call.dv);
    const auto of_queries = dq_kernel<Form, seen, T, D>, of_keys = dkv_kernel<Form, seen, T, D>;
    const int shared = take_shared<Form>(of_queries, 4, "shared memory for attention_backward");
    take_shared<Form>(of_keys, 4, "shared memory for attention_backward");
    delta_kernel<T><<<grid_of(ceil_div(shape.query_rows(), threads / 32)), threads, 0, stream>>>(call, delta);
    of_queries<<<tiles_of<Form>(shape.seq, units), threads, shared, stream>>>(call, drops, delta, units,
                                                                              packed);
    of_keys<<<tiles_of<Form>(shape_of_keys(shape).seq, groups), threads, shared, stream>>>(call, drops, delta,
                                                                                           groups, packed);
  });
  check_launch("attention_backward");
}

#define PRUN_INSTANTIATE(T)                                       \
  template void attention<T>(const AttentionForward<T>&, Stream); \
  template void attention_backward<T>(const AttentionBackward<T>&, Stream);

PRUN_INSTANTIATE(double)
PRUN_INSTANTIATE(float)
PRUN_INSTANTIATE(bf16)
PRUN_INSTANTIATE(f16)

}  // namespace prun::cuda
