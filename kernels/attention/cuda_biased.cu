// Takes a tile of queries and one of keys at a time, as attention.cu does. Each head's bias is spread out by
// distance first, so that a score finds its own by key - query. Where the gradients of queries are computed,
// the scores' gradients of a tile are added up along its diagonals, which are distances, and these by bucket.
#include "attention/cuda_biased.hpp"

#include <algorithm>
#include <cmath>

#include "attention/cuda_bucket_sums.cuh"
#include "attention/cuda_tiles.cuh"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using namespace attention_tiles;

template <class T, int W>
using ForwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 2), W>;
template <class T, int W>
using BackwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 4), W>;

// Spreads a table out; see Biases.
template <class T, class C = Compute<T>>
__global__ void biases_kernel(const __grid_constant__ DistanceBias<T> bias, C* biases, int seq, bool causal) {
  const std::int64_t each = Biases<C>::of_each_head(seq);
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
            distance = at - (seq - 1 + Biases<C>::margin), away = distance < 0 ? -distance : distance;
  if (at >= each) return;
  const int behind = !causal && distance > 0 ? bias.bounds.each : 0;
  biases[blockIdx.y * each + at] = away >= seq
                                       ? C(0)
                                       : load(bias.table + blockIdx.y * std::int64_t{bias.bounds.count} +
                                              behind + bias.bounds.of_distance(away));
}

__device__ bool visible(const AttentionShape& shape, std::int64_t query, std::int64_t key) {
  return key < shape.seq && (!shape.causal || key <= query);
}

// Holds the softmax of a thread's rows, over the keys folded in so far. Rows behind the last repeat that one.
template <class T, class Tiles>
struct BiasedSoftmax {
  using C = Compute<T>;
  C largest[Tiles::per_thread], sum[Tiles::per_thread];
  std::int64_t query[Tiles::per_thread];

  __device__ BiasedSoftmax(const AttentionShape& shape, std::int64_t first) {
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      largest[i] = -INFINITY, sum[i] = 0;
      query[i] = min(first + Tiles::row(i), shape.seq - 1);
    }
  }

  // Turns scores into weights relative to the new maximum; the result so far shrinks to match.
  __device__ void fold(const AttentionShape& shape, const C* bias, C scale, std::int64_t key,
                       typename Tiles::Scores& scores, typename Tiles::Sums& result) {
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      C top = largest[i], added = 0;
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) {
        const std::int64_t at = key + Tiles::score_column(j);
        scores[i][j] =
            visible(shape, query[i], at) ? scale * scores[i][j] + bias[at - query[i]] : C(-INFINITY);
        top = Larger()(top, scores[i][j]);
      }
      top = row_fold(top, Larger());
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) added += scores[i][j] = exp_of<T>(scores[i][j] - top);
      const C shrink = exp_of<T>(largest[i] - top);
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
template <class Tiles, class T>
__global__ __launch_bounds__(threads) void biased_forward_kernel(
    const __grid_constant__ AttentionForward<T> call, Biases<Compute<T>> biases, std::int64_t units,
    bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *kv = Tiles::tile(1), *weights = Tiles::tile(2);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  const C* const bias = biases.of_head(unit.head);
  BiasedSoftmax<T, Tiles> softmax(shape, first);
  typename Tiles::Sums result;
  Tiles::clear(result);
  const std::int64_t end = keys_end(shape, first + Tiles::rows - 1);
  for (std::int64_t key = 0; key < end; key += Tiles::rows) {
    __syncthreads();
    load_tile<Tiles>(rows_of(call.k, unit.batch, unit.head), key, shape, packed, kv);
    __syncthreads();
    typename Tiles::Scores scores;
    Tiles::dot_rows(q, kv, scores);
    softmax.fold(shape, bias, biases.scale, key, scores, result);
    Tiles::store_scores(scores, weights);
    __syncthreads();
    load_tile<Tiles>(rows_of(call.v, unit.batch, unit.head), key, shape, packed, kv);
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

// Computes dq, and in `parts` [blocks, buckets] the block's part of the gradient of its head's table.
template <class Tiles, class T>
__global__ __launch_bounds__(threads) void biased_dq_kernel(const __grid_constant__ AttentionBackward<T> call,
                                                            const __grid_constant__ BucketBounds bounds,
                                                            Biases<Compute<T>> biases,
                                                            const Compute<T>* delta, Compute<T>* parts,
                                                            std::int64_t units, bool packed) {
  using C = Compute<T>;
  __shared__ TileBuckets<Tiles, C> sums;
  const AttentionShape& shape = call.shape;
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *dy = Tiles::tile(1), *k = Tiles::tile(2), *v = Tiles::tile(3),
    *dscores = Tiles::tile(4);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  load_tile<Tiles>(rows_of(call.dy, unit, shape.head_dim), first, shape, packed, dy);
  sums.clear(bounds);
  C lse_of[Tiles::per_thread], delta_of[Tiles::per_thread];
#pragma unroll
  for (int i = 0; i < Tiles::per_thread; ++i) {
    const std::int64_t query = first + Tiles::row(i);
    const bool there = query < shape.seq;
    lse_of[i] = there ? call.lse[unit.statistics(shape) + query] : C(0);
    delta_of[i] = there ? delta[unit.statistics(shape) + query] : C(0);
  }
  const C* const bias = biases.of_head(unit.head);
  typename Tiles::Sums dq;
  Tiles::clear(dq);
  const std::int64_t end = keys_end(shape, first + Tiles::rows - 1);
  for (std::int64_t key = 0; key < end; key += Tiles::rows) {
    __syncthreads();
    load_tile<Tiles>(rows_of(call.k, unit.batch, unit.head), key, shape, packed, k);
    load_tile<Tiles>(rows_of(call.v, unit.batch, unit.head), key, shape, packed, v);
    __syncthreads();
    typename Tiles::Scores scores, dweights;
    Tiles::dot_rows(q, k, scores);
    Tiles::dot_rows(dy, v, dweights);
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i)
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) {
        const std::int64_t at = key + Tiles::score_column(j), query = first + Tiles::row(i);
        const bool is_seen = query < shape.seq && visible(shape, query, at);
        scores[i][j] = is_seen ? exp_of<T>(biases.scale * scores[i][j] + bias[at - query] - lse_of[i]) *
                                     (dweights[i][j] - delta_of[i])
                               : C(0);
      }
    Tiles::store_scores(scores, dscores);
    __syncthreads();
    Tiles::add_product(dscores, k, dq);
    sums.add_diagonals(dscores);
    __syncthreads();
    sums.add_buckets(bounds, key - first);
  }
  store_sums<Tiles>(dq, rows_of(call.dq, unit, shape.head_dim), first, shape, packed,
                    [&](int) { return biases.scale; });
  __syncthreads();
  for (int i = threadIdx.x; i < bounds.count; i += threads)
    parts[blockIdx.x * std::int64_t{bounds.count} + i] = sums.sum[i];
}

// A block adds up a head's parts of a bucket.
template <class T>
__global__ __launch_bounds__(threads) void dtable_kernel(const Compute<T>* parts, T* dtable,
                                                         AttentionShape shape, int buckets,
                                                         std::int64_t units, std::int64_t blocks) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t head = blockIdx.x / buckets, bucket = blockIdx.x % buckets,
                     of_head = units / shape.heads;
  C sum = 0;
  for (std::int64_t i = threadIdx.x; i < blocks / shape.heads; i += threads) {
    const std::int64_t tile = i / of_head, sample = i % of_head / shape.queries, query = i % shape.queries;
    const std::int64_t block = tile * units + (sample * shape.heads + head) * shape.queries + query;
    sum += parts[block * buckets + bucket];
  }
  sum = block_fold(sum, C(0), Add(), scratch);
  if (threadIdx.x == 0) store(dtable + blockIdx.x, sum);
}

// A block takes a tile of one head's keys and values; its scores lie [key, query].
template <class Tiles, class T>
__global__ __launch_bounds__(threads) void biased_dkv_kernel(
    const __grid_constant__ AttentionBackward<T> call, Biases<Compute<T>> biases, const Compute<T>* delta,
    std::int64_t groups, bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const std::int64_t group = blockIdx.x % groups, first = blockIdx.x / groups * Tiles::rows,
                     batch = group / shape.heads, head = group % shape.heads;
  C *k = Tiles::tile(0), *v = Tiles::tile(1), *q = Tiles::tile(2), *dy = Tiles::tile(3),
    *scratch = Tiles::tile(4);
  load_tile<Tiles>(rows_of(call.k, batch, head), first, shape, packed, k);
  load_tile<Tiles>(rows_of(call.v, batch, head), first, shape, packed, v);
  const C* const bias = biases.of_head(head);
  typename Tiles::Sums dk, dv;
  Tiles::clear(dk), Tiles::clear(dv);
  for (std::int64_t j = 0; j < shape.queries; ++j) {
    const Unit unit(shape, group * shape.queries + j);
    const C *lse = call.lse + unit.statistics(shape), *deltas = delta + unit.statistics(shape);
    for (std::int64_t query = shape.causal ? first : 0; query < shape.seq; query += Tiles::rows) {
      __syncthreads();
      load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), query, shape, packed, q);
      load_tile<Tiles>(rows_of(call.dy, unit, shape.head_dim), query, shape, packed, dy);
      __syncthreads();
      typename Tiles::Scores weights, dweights;
      Tiles::dot_rows(k, q, weights);
      Tiles::dot_rows(v, dy, dweights);
#pragma unroll
      for (int c = 0; c < Tiles::per_thread; ++c) {
        const std::int64_t position = query + Tiles::score_column(c);
        const bool there = position < shape.seq;
        const C lse_of = there ? lse[position] : C(0), delta_of = there ? deltas[position] : C(0);
#pragma unroll
        for (int i = 0; i < Tiles::per_thread; ++i) {
          const std::int64_t at = first + Tiles::row(i);
          const bool is_seen = there && visible(shape, position, at);
          weights[i][c] =
              is_seen ? exp_of<T>(biases.scale * weights[i][c] + bias[at - position] - lse_of) : C(0);
          dweights[i][c] = is_seen ? weights[i][c] * (dweights[i][c] - delta_of) : C(0);
        }
      }
      Tiles::store_scores(weights, scratch);
      __syncthreads();
      Tiles::add_product(scratch, dy, dv);
      __syncthreads();
      Tiles::store_scores(dweights, scratch);
      __syncthreads();
      Tiles::add_product(scratch, q, dk);
    }
  }
  store_sums<Tiles>(dk, rows_of(call.dk, batch, head), first, shape, packed,
                    [&](int) { return biases.scale; });
  store_sums<Tiles>(dv, rows_of(call.dv, batch, head), first, shape, packed, [](int) { return C(1); });
}

// ---------------------------------------------------------------- the host's side
std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::int64_t units_of(const AttentionShape& s) { return s.batch * s.heads * s.queries; }

// Counts the tiles of queries; the fewest rows that a tile may have make the most blocks.
std::int64_t most_blocks(const AttentionShape& s) { return ceil_div(s.seq, side) * units_of(s); }

// Divides a workspace: it has biases, and behind them, for the gradient, the rows' deltas and the parts of
// dtable.
template <class T>
struct Room {
  Compute<T>*biases, *delta, *parts;

  Room(void* workspace, const AttentionShape& s) {
    auto* const begin = static_cast<char*>(workspace);
    biases = reinterpret_cast<Compute<T>*>(begin);
    delta = reinterpret_cast<Compute<T>*>(begin + attention_biased_workspace<T>(s));
    parts = reinterpret_cast<Compute<T>*>(begin + attention_biased_workspace<T>(s) +
                                          rounded(attention_backward_workspace<T>(s)));
  }
};

template <class T>
Biases<Compute<T>> spread(const DistanceBias<T>& bias, const AttentionShape& s, Compute<T>* to,
                          Stream stream) {
  const dim3 grid(grid_of(ceil_div(Biases<Compute<T>>::of_each_head(s.seq), 256)),
                  static_cast<unsigned>(s.heads));
  biases_kernel<T><<<grid, 256, 0, stream>>>(bias, to, static_cast<int>(s.seq), s.causal);
  check_launch("attention_biased: biases");
  return {to, static_cast<Compute<T>>(bias.scale), s.seq};
}

template <class T>
void add_up(const Compute<T>* parts, const BiasedBackward<T>& given, std::int64_t tiles, Stream stream) {
  const AttentionShape& shape = given.attention.shape;
  const int buckets = given.bias.bounds.count;
  dtable_kernel<T><<<grid_of(shape.heads * buckets), threads, 0, stream>>>(
      parts, given.dtable, shape, buckets, units_of(shape), tiles * units_of(shape));
  check_launch("attention_biased_backward: table");
}

}  // namespace

BucketBounds bounds_of(const RelativeBuckets& buckets, std::int64_t seq) {
  if (buckets.each() > most_distance_buckets)
    throw_error(ErrorCode::unsupported, "attention_biased on the GPU takes up to ", most_distance_buckets,
                " buckets in each direction, not ", buckets.each(), "; use the CPU device or fewer buckets");
  BucketBounds bounds;
  bounds.each = static_cast<std::int32_t>(buckets.each());
  bounds.count = static_cast<std::int32_t>(buckets.count);
  std::fill_n(bounds.first + 1, bounds.each, static_cast<std::int32_t>(seq));
  for (std::int64_t away = seq - 1; away > 0; --away)
    for (std::int64_t i = buckets.of_distance(away); i > 0 && bounds.first[i] > away; --i)
      bounds.first[i] = static_cast<std::int32_t>(away);
  return bounds;
}

template <class T>
std::int64_t attention_biased_workspace(const AttentionShape& s) {
  return rounded(s.heads * Biases<Compute<T>>::of_each_head(s.seq) *
                 static_cast<std::int64_t>(sizeof(Compute<T>)));
}

template <class T>
std::int64_t attention_biased_backward_workspace(const AttentionShape& s, std::int64_t buckets) {
  return attention_biased_workspace<T>(s) + rounded(attention_backward_workspace<T>(s)) +
         most_blocks(s) * buckets * static_cast<std::int64_t>(sizeof(Compute<T>));
}

template <class T>
void attention_biased(const BiasedForward<T>& given, Stream stream) {
  const AttentionForward<T>& call = given.attention;
  const AttentionShape& shape = call.shape;
  if (shape.query_rows() == 0) return;
  const Biases<Compute<T>> biases = spread(given.bias, shape, Room<T>(call.workspace, shape).biases, stream);
  if constexpr (is_half<T>)
    if (given.form) return tensor_attention(call, *given.form, stream, biases);
  const bool packed = packs<T>(shape, call.q, call.k, call.v, call.y);
  with_width(shape, [&]<int W>(std::integral_constant<int, W>) {
    using Form = ForwardTiles<T, W>;
    const auto kernel = biased_forward_kernel<Form, T>;
    const int shared = take_shared<Form>(kernel, 2, "shared memory for attention_biased");
    kernel<<<tiles_of<Form>(shape.seq, units_of(shape)), threads, shared, stream>>>(call, biases,
                                                                                    units_of(shape), packed);
  });
  check_launch("attention_biased");
}

template <class T>
void attention_biased_backward(const BiasedBackward<T>& given, Stream stream) {
  const AttentionBackward<T>& call = given.attention;
  const AttentionShape& shape = call.shape;
  const std::int64_t groups = shape.batch * shape.heads, units = units_of(shape);
  if (shape.query_rows() == 0) return;
  const Room<T> room(call.workspace, shape);
  const Biases<Compute<T>> biases = spread(given.bias, shape, room.biases, stream);
  const BucketBounds& bounds = given.bias.bounds;
  if constexpr (is_half<T>)
    if (given.form) {
      tensor_attention_backward(call, *given.form, stream, biases, {bounds, room.parts});
      return add_up(room.parts, given, tensor_attention_tiles(shape, *given.form), stream);
    }
  const bool packed = packs<T>(shape, call.dy, call.q, call.k, call.v, call.dq, call.dk, call.dv);
  with_width(shape, [&]<int W>(std::integral_constant<int, W>) {
    using Form = BackwardTiles<T, W>;
    const auto of_queries = biased_dq_kernel<Form, T>;
    const auto of_keys = biased_dkv_kernel<Form, T>;
    const int shared = take_shared<Form>(of_queries, 4, "shared memory for attention_biased_backward");
    take_shared<Form>(of_keys, 4, "shared memory for attention_biased_backward");
    const unsigned blocks = tiles_of<Form>(shape.seq, units);
    delta_kernel<T>
        <<<grid_of(ceil_div(shape.query_rows(), threads / 32)), threads, 0, stream>>>(call, room.delta);
    of_queries<<<blocks, threads, shared, stream>>>(call, bounds, biases, room.delta, room.parts, units,
                                                    packed);
    add_up(room.parts, given, ceil_div(shape.seq, Form::rows), stream);
    of_keys<<<tiles_of<Form>(shape.seq, groups), threads, shared, stream>>>(call, biases, room.delta, groups,
                                                                            packed);
  });
  check_launch("attention_biased_backward");
}

#define PRUN_INSTANTIATE(T)                                                                          \
  template std::int64_t attention_biased_workspace<T>(const AttentionShape&);                        \
  template std::int64_t attention_biased_backward_workspace<T>(const AttentionShape&, std::int64_t); \
  template void attention_biased<T>(const BiasedForward<T>&, Stream);                                \
  template void attention_biased_backward<T>(const BiasedBackward<T>&, Stream);

PRUN_INSTANTIATE(double)
PRUN_INSTANTIATE(float)
PRUN_INSTANTIATE(bf16)
PRUN_INSTANTIATE(f16)

}  // namespace prun::cuda
