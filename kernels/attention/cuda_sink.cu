#include "attention/cuda_sink.hpp"

#include "attention/cuda_rows.cuh"
#include "cuda/check.hpp"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

inline constexpr int sink_threads = 128, sink_warps = sink_threads / 32;

// A warp takes a row.
template <class T>
__global__ __launch_bounds__(sink_threads) void take_shares_kernel(AttentionShape shape, Heads<T> y,
                                                                   Compute<T>* lse, const T* sinks) {
  using C = Compute<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * sink_warps + threadIdx.x / 32;
  if (row >= shape.query_rows()) return;
  const std::int64_t position = row % shape.seq;
  const Unit unit(shape, row / shape.seq);
  const bool first = threadIdx.x % 32 == 0;  // of the warp: the only one that reads lse, and writes it
  const C sink = load(sinks + unit.head * shape.queries + unit.query),
          alone = warp_fold(first ? lse[row] : C(0), Add()), largest = sink > alone ? sink : alone;
  const C together = largest + log(exp(alone - largest) + exp(sink - largest)), kept = exp(alone - together);
  const Rows<T> rows = rows_of(y, unit, shape.head_dim);
  T* const to = rows.first + position * rows.stride;
  for (std::int64_t c = threadIdx.x % 32; c < shape.head_dim; c += 32) store(to + c, load(to + c) * kept);
  if (first) lse[row] = together;
}

// A block takes a head of queries; each warp adds up some of its rows.
template <class T>
__global__ __launch_bounds__(sink_threads) void sink_grad_kernel(AttentionShape shape, const T* dy,
                                                                 const T* y, const Compute<T>* lse,
                                                                 const T* sinks, T* dsinks) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t heads = shape.heads * shape.queries, head = blockIdx.x;
  const C sink = load(sinks + head);
  C sum = 0;
  for (std::int64_t i = threadIdx.x / 32; i < shape.batch * shape.seq; i += sink_warps) {
    const std::int64_t batch = i / shape.seq, position = i % shape.seq;
    const std::int64_t at = (i * heads + head) * shape.head_dim;
    C delta = 0;
    for (std::int64_t c = threadIdx.x % 32; c < shape.head_dim; c += 32)
      delta += load(dy + at + c) * load(y + at + c);
    sum -= exp(sink - lse[(batch * heads + head) * shape.seq + position]) * delta;
  }
  sum = block_fold(sum, C(0), Add(), scratch);
  if (threadIdx.x == 0) store(dsinks + head, sum);
}

}  // namespace

template <class T>
void take_shares(const AttentionShape& shape, const Heads<T>& y, Compute<T>* lse, const T* sinks,
                 Stream stream) {
  if (shape.query_rows() == 0) return;
  take_shares_kernel<T>
      <<<grid_of(ceil_div(shape.query_rows(), sink_warps)), sink_threads, 0, stream>>>(shape, y, lse, sinks);
  check_launch("attention");
}

template <class T>
void attention_sink_grad(const AttentionShape& shape, const T* dy, const T* y, const Compute<T>* lse,
                         const T* sinks, T* dsinks, Stream stream) {
  sink_grad_kernel<T>
      <<<grid_of(shape.heads * shape.queries), sink_threads, 0, stream>>>(shape, dy, y, lse, sinks, dsinks);
  check_launch("attention_sink_grad");
}

#define PRUN_SINKS(T)                                                                                  \
  template void take_shares<T>(const AttentionShape&, const Heads<T>&, Compute<T>*, const T*, Stream); \
  template void attention_sink_grad<T>(const AttentionShape&, const T*, const T*, const Compute<T>*,   \
                                       const T*, T*, Stream);
PRUN_SINKS(double)
PRUN_SINKS(float)
PRUN_SINKS(bf16)
PRUN_SINKS(f16)
#undef PRUN_SINKS

}  // namespace prun::cuda
