// Scores exist for one tile of queries and one tile of keys at a time. Forward keeps a running maximum and
// sum of each query; backward computes the weights again from lse, once for the gradients of a tile of
// queries and once for those of a tile of keys, which take in their group's queries in order.
#include "cuda/attention.hpp"

#include <cmath>

#include "cuda/attention_tiles.cuh"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using namespace attention_tiles;

template <class T, int W>
using ForwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 2), W>;
template <class T, int W>
using BackwardTiles = Tiles<Compute<T>, rows_that_fit<Compute<T>>(W, 4), W>;

__device__ bool visible(const AttentionShape& shape, std::int64_t query, std::int64_t key) {
  return key < shape.seq && (!shape.causal || key <= query);
}

// The softmax of each of a thread's rows, as far as keys were folded in.
template <class T, class Tiles, bool late>
struct Softmax {
  using C = Compute<T>;
  C largest[Tiles::per_thread], sum[Tiles::per_thread];
  int first[Tiles::per_thread];  // key that the row sees

  template <class Call>
  __device__ Softmax(const Call& call, std::int64_t batch, std::int64_t query) {
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      largest[i] = -INFINITY, sum[i] = 0;
      first[i] = first_key<late>(call, batch, query + Tiles::row(i));
    }
  }

  // Turns scores into weights relative to the new maximum; what the result held shrinks to match.
  __device__ void fold(const AttentionShape& shape, std::int64_t query, std::int64_t key,
                       typename Tiles::Scores& scores, typename Tiles::Sums& result) {
    const C scale = scale_of<C>(shape);
#pragma unroll
    for (int i = 0; i < Tiles::per_thread; ++i) {
      C top = largest[i], added = 0;
#pragma unroll
      for (int j = 0; j < Tiles::per_thread; ++j) {
        const std::int64_t at = key + Tiles::score_column(j);
        const bool seen = visible(shape, query + Tiles::row(i), at) && (!late || at >= first[i]);
        scores[i][j] = seen ? scale * scores[i][j] : C(-INFINITY);
        top = Larger()(top, scores[i][j]);
      }
      top = row_fold(top, Larger());
      const C base = late && top == C(-INFINITY) ? C(0) : top;  // a row that has seen nothing yet
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
template <class Tiles, bool late, class T>
__global__ __launch_bounds__(threads) void forward_kernel(const __grid_constant__ AttentionForward<T> call,
                                                          std::int64_t units, bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *kv = Tiles::tile(1), *weights = Tiles::tile(2);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  Softmax<T, Tiles, late> softmax(call, unit.batch, first);
  typename Tiles::Sums result;
  Tiles::clear(result);
  const std::int64_t end = keys_end(shape, first + Tiles::rows - 1);
  for (std::int64_t key = keys_begin<Tiles::rows, late>(call, unit.batch, first); key < end;
       key += Tiles::rows) {
    __syncthreads();
    load_tile<Tiles>(rows_of(call.k, unit.batch, unit.head), key, shape, packed, kv);
    __syncthreads();
    typename Tiles::Scores scores;
    Tiles::dot_rows(q, kv, scores);
    softmax.fold(shape, first, key, scores, result);
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

// delta = rows of dy . y: what the softmax's own gradient subtracts from each weight's. A warp takes a row.
template <class T>
__global__ void delta_kernel(const __grid_constant__ AttentionBackward<T> call, Compute<T>* delta) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const std::int64_t index = blockIdx.x * std::int64_t{threads / 32} + threadIdx.x / 32;
  if (index >= shape.query_rows()) return;
  const Unit unit(shape, index / shape.seq);
  const std::int64_t position = index % shape.seq;
  const Rows<const T> dy = rows_of(call.dy, unit, shape.head_dim), y = rows_of(call.y, unit, shape.head_dim);
  const T *dy_row = dy.first + position * dy.stride, *y_row = y.first + position * y.stride;
  C sum = 0;
  for (int d = threadIdx.x % 32; d < shape.head_dim; d += 32) sum += load(dy_row + d) * load(y_row + d);
  sum = warp_fold(sum, Add());
  if (threadIdx.x % 32 == 0) delta[index] = sum;
}

template <class Tiles, bool late, class T>
__global__ __launch_bounds__(threads) void dq_kernel(const __grid_constant__ AttentionBackward<T> call,
                                                     const Compute<T>* delta, std::int64_t units,
                                                     bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const Unit unit(shape, blockIdx.x % units);
  const std::int64_t first = (gridDim.x / units - 1 - blockIdx.x / units) * Tiles::rows;
  C *q = Tiles::tile(0), *dy = Tiles::tile(1), *k = Tiles::tile(2), *v = Tiles::tile(3),
    *dscores = Tiles::tile(4);
  load_tile<Tiles>(rows_of(call.q, unit, shape.head_dim), first, shape, packed, q);
  load_tile<Tiles>(rows_of(call.dy, unit, shape.head_dim), first, shape, packed, dy);
  C lse_of[Tiles::per_thread], delta_of[Tiles::per_thread];
  int first_of[Tiles::per_thread];
#pragma unroll
  for (int i = 0; i < Tiles::per_thread; ++i) {
    const std::int64_t position = first + Tiles::row(i);
    const bool there = position < shape.seq;
    lse_of[i] = there ? call.lse[unit.statistics(shape) + position] : C(0);
    delta_of[i] = there ? delta[unit.statistics(shape) + position] : C(0);
    first_of[i] = first_key<late>(call, unit.batch, position);
  }
  const C scale = scale_of<C>(shape);
  typename Tiles::Sums dq;
  Tiles::clear(dq);
  const std::int64_t end = keys_end(shape, first + Tiles::rows - 1);
  for (std::int64_t key = keys_begin<Tiles::rows, late>(call, unit.batch, first); key < end;
       key += Tiles::rows) {
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
        const std::int64_t at = key + Tiles::score_column(j);
        const bool seen = visible(shape, first + Tiles::row(i), at) && (!late || at >= first_of[i]);
        const C weight = exp_of<T>(scale * scores[i][j] - lse_of[i]);
        scores[i][j] = seen ? weight * (dweights[i][j] - delta_of[i]) : C(0);
      }
    Tiles::store_scores(scores, dscores);
    __syncthreads();
    Tiles::add_product(dscores, k, dq);
  }
  store_sums<Tiles>(dq, rows_of(call.dq, unit, shape.head_dim), first, shape, packed,
                    [&](int) { return scale; });
}

// A block takes a tile of one head's keys and values; its scores lie [key, query].
template <class Tiles, bool late, class T>
__global__ __launch_bounds__(threads) void dkv_kernel(const __grid_constant__ AttentionBackward<T> call,
                                                      const Compute<T>* delta, std::int64_t groups,
                                                      bool packed) {
  using C = Compute<T>;
  const AttentionShape& shape = call.shape;
  const std::int64_t group = blockIdx.x % groups, first = blockIdx.x / groups * Tiles::rows;
  C *k = Tiles::tile(0), *v = Tiles::tile(1), *q = Tiles::tile(2), *dy = Tiles::tile(3),
    *scratch = Tiles::tile(4);
  const std::int64_t batch = group / shape.heads, head = group % shape.heads;
  load_tile<Tiles>(rows_of(call.k, batch, head), first, shape, packed, k);
  load_tile<Tiles>(rows_of(call.v, batch, head), first, shape, packed, v);
  const C scale = scale_of<C>(shape);
  typename Tiles::Sums dk, dv;
  Tiles::clear(dk), Tiles::clear(dv);
  for (std::int64_t j = 0; j < shape.queries; ++j) {
    const Unit unit(shape, group * shape.queries + j);
    const C *lse = call.lse + unit.statistics(shape), *deltas = delta + unit.statistics(shape);
    for (std::int64_t query = shape.causal ? first : 0;
         query < shape.seq && (!late || keys_begin<Tiles::rows, late>(call, batch, query) <= first);
         query += Tiles::rows) {
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
        const int first_of = first_key<late>(call, batch, position);
#pragma unroll
        for (int i = 0; i < Tiles::per_thread; ++i) {
          const std::int64_t at = first + Tiles::row(i);
          const bool seen = there && visible(shape, position, at) && (!late || at >= first_of);
          weights[i][c] = seen ? exp_of<T>(scale * weights[i][c] - lse_of) : C(0);
          dweights[i][c] = seen ? weights[i][c] * (dweights[i][c] - delta_of) : C(0);
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
  store_sums<Tiles>(dk, rows_of(call.dk, batch, head), first, shape, packed, [&](int) { return scale; });
  store_sums<Tiles>(dv, rows_of(call.dv, batch, head), first, shape, packed, [](int) { return C(1); });
}

// ---------------------------------------------------------------- the host's side
// launch(width, late), both as types.
template <class Launch>
void with_form(std::int64_t head_dim, bool begins_late, Launch launch) {
  if (head_dim > most_width)
    throw_error(ErrorCode::unsupported, "attention on the GPU takes heads of up to ", most_width,
                " channels, not ", head_dim, "; use the CPU device or smaller heads");
  const auto with_width = [&](auto late) {
    if (head_dim <= 64)
      launch(std::integral_constant<int, 64>(), late);
    else if (head_dim <= 128)
      launch(std::integral_constant<int, 128>(), late);
    else
      launch(std::integral_constant<int, most_width>(), late);
  };
  if (begins_late)
    with_width(std::true_type());
  else
    with_width(std::false_type());
}

template <class Tiles>
unsigned tiles_of(std::int64_t seq, std::int64_t units) {
  return grid_of(ceil_div(seq, Tiles::rows) * units);
}

// Lets the kernel use what it needs of shared memory, and returns how much that is.
template <class Tiles, class Kernel>
int take_shared(Kernel kernel, int tiles, const char* name) {
  const int bytes = shared_bytes<typename std::remove_all_extents_t<typename Tiles::Scores>>(
      Tiles::rows, Tiles::width, tiles);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  return bytes;
}

}  // namespace

template <class T>
void attention(const AttentionForward<T>& call, Stream stream) {
  const AttentionShape& shape = call.shape;
  const std::int64_t units = shape.batch * shape.heads * shape.queries;
  if (shape.query_rows() == 0) return;
  const bool packed = packs<T>(shape, call.q, call.k, call.v, call.y);
  with_form(shape.head_dim, begins_late(call),
            [&]<int W, bool late>(std::integral_constant<int, W>, std::bool_constant<late>) {
              using Form = ForwardTiles<T, W>;
              const auto kernel = forward_kernel<Form, late, T>;
              const int shared = take_shared<Form>(kernel, 2, "shared memory for attention");
              kernel<<<tiles_of<Form>(shape.seq, units), threads, shared, stream>>>(call, units, packed);
            });
  check_launch("attention");
}

template <class T>
void attention_backward(const AttentionBackward<T>& call, Stream stream) {
  const AttentionShape& shape = call.shape;
  const std::int64_t groups = shape.batch * shape.heads, units = groups * shape.queries;
  if (shape.query_rows() == 0) return;
  auto* delta = static_cast<Compute<T>*>(call.workspace);
  const bool packed = packs<T>(shape, call.dy, call.q, call.k, call.v, call.dq, call.dk, call.dv);
  with_form(
      shape.head_dim, begins_late(call),
      [&]<int W, bool late>(std::integral_constant<int, W>, std::bool_constant<late>) {
        using Form = BackwardTiles<T, W>;
        const auto of_queries = dq_kernel<Form, late, T>, of_keys = dkv_kernel<Form, late, T>;
        const int shared = take_shared<Form>(of_queries, 4, "shared memory for attention_backward");
        take_shared<Form>(of_keys, 4, "shared memory for attention_backward");
        delta_kernel<T>
            <<<grid_of(ceil_div(shape.query_rows(), threads / 32)), threads, 0, stream>>>(call, delta);
        of_queries<<<tiles_of<Form>(shape.seq, units), threads, shared, stream>>>(call, delta, units, packed);
        of_keys<<<tiles_of<Form>(shape.seq, groups), threads, shared, stream>>>(call, delta, groups, packed);
      });
  check_launch("attention_backward");
}

#define PRUN_INSTANTIATE(T)                                       \
  template void attention<T>(const AttentionForward<T>&, Stream); \
  template void attention_backward<T>(const AttentionBackward<T>&, Stream);

PRUN_INSTANTIATE(double)
PRUN_INSTANTIATE(float)
PRUN_INSTANTIATE(bf16)

}  // namespace prun::cuda
