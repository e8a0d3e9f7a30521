// Kernels for the ops around the gated delta rule. kernels/delta_heads/cpu.cpp has the same for the CPU.
#include "delta_heads/cuda.hpp"

#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using Index = std::int64_t;

constexpr int threads = 256, row_threads = 128;

__device__ inline Index element_of_thread() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
unsigned blocks_for(Index elements) { return grid_of(ceil_div(elements, threads)); }

// Widths are of N elements.
template <int N, class T>
__global__ void split_mixed_kernel(const T* x, T* y, T* gate, Index rows, unsigned first, unsigned rest) {
  const Index element = element_of_thread(), row = element / (first + rest);
  const unsigned i = static_cast<unsigned>(element - row * (first + rest));
  if (row >= rows) return;
  T* const to = i < first ? y + (row * first + i) * N : gate + (row * rest + i - first) * N;
  store_pack(to, load_pack<N>(x + element * N));
}

template <int N, class T>
__global__ void join_mixed_kernel(const T* y, const T* gate, T* x, Index rows, unsigned first,
                                  unsigned rest) {
  const Index element = element_of_thread(), row = element / (first + rest);
  const unsigned i = static_cast<unsigned>(element - row * (first + rest));
  if (row >= rows) return;
  const T* const from = i < first ? y + (row * first + i) * N : gate + (row * rest + i - first) * N;
  store_pack(x + element * N, load_pack<N>(from));
}

// Returns 1 / sqrt(sum(x^2) + eps) in all threads of the block.
template <class T, class C = Compute<T>>
__device__ C shrinks_by(const T* x, Index n, C eps, C* scratch) {
  C sum = 0;
  for (Index i = threadIdx.x; i < n; i += blockDim.x) sum += load(x + i) * load(x + i);
  sum = block_fold(sum, C(0), Add(), scratch);
  __syncthreads();
  return C(1) / sqrt(sum + eps);
}

// A block has a row.
template <class T, class C = Compute<T>>
__global__ __launch_bounds__(row_threads) void delta_heads_kernel(const T* x, T* q, T* k, T* v, Index key,
                                                                  Index rest, C eps) {
  __shared__ C scratch[32];
  const Index row = blockIdx.x;
  const T* const from = x + row * (2 * key + rest);
  for (int part = 0; part < 2; ++part) {
    const C by = shrinks_by(from + part * key, key, eps, scratch);
    T* const to = (part ? k : q) + row * key;
    for (Index i = threadIdx.x; i < key; i += blockDim.x) store(to + i, load(from + part * key + i) * by);
  }
  for (Index i = threadIdx.x; i < rest; i += blockDim.x) v[row * rest + i] = from[2 * key + i];
}

template <class T, class C = Compute<T>>
__global__ __launch_bounds__(row_threads) void delta_heads_grad_kernel(const T* dq, const T* dk, const T* dv,
                                                                       const T* x, T* dx, Index key,
                                                                       Index rest, C eps) {
  __shared__ C scratch[32];
  const Index row = blockIdx.x, begin = row * (2 * key + rest);
  for (int part = 0; part < 2; ++part) {
    const T *const from = x + begin + part * key, *const d = (part ? dk : dq) + row * key;
    const C by = shrinks_by(from, key, eps, scratch);
    C along = 0;
    for (Index i = threadIdx.x; i < key; i += blockDim.x) along += load(from + i) * by * load(d + i);
    along = block_fold(along, C(0), Add(), scratch);
    __syncthreads();
    for (Index i = threadIdx.x; i < key; i += blockDim.x)
      store(dx + begin + part * key + i, by * (load(d + i) - load(from + i) * by * along));
  }
  for (Index i = threadIdx.x; i < rest; i += blockDim.x) dx[begin + 2 * key + i] = dv[row * rest + i];
}

template <class C>
__device__ C softplus(C x) {
  return (x > C(0) ? x : C(0)) + log1p(exp_of<C>(x > C(0) ? -x : x));
}

// Names the numbers of a value head: `share` and `decay` of x, and its place in the vectors.
struct GateAt {
  Index share, decay, own;

  __device__ static GateAt of(const GateSizes& s, Index i) {
    const Index head = i / s.values, value = i % s.values;
    return {head * 2 * s.values + value, (head * 2 + 1) * s.values + value, i % s.in_row};
  }
};

template <class T, class C = Compute<T>>
__global__ void delta_gates_kernel(GateSizes s, const T* x, const T* rate, const T* bias, C* g, C* beta) {
  const Index i = element_of_thread();
  if (i >= s.count) return;
  const GateAt at = GateAt::of(s, i);
  g[i] = -exp_of<C>(load(rate + at.own)) * softplus<C>(load(x + at.decay) + load(bias + at.own));
  beta[i] = sigmoid<C>(load(x + at.share)).value;
}

template <class T, class C = Compute<T>>
__global__ void delta_gates_input_grad_kernel(GateSizes s, const C* dg, const C* dbeta, const T* x,
                                              const T* rate, const T* bias, T* dx) {
  const Index i = element_of_thread();
  if (i >= s.count) return;
  const GateAt at = GateAt::of(s, i);
  const C slope = sigmoid<C>(load(x + at.decay) + load(bias + at.own)).value;
  store(dx + at.decay, -dg[i] * exp_of<C>(load(rate + at.own)) * slope);
  const Sigmoid<C> share = sigmoid<C>(load(x + at.share));
  store(dx + at.share, dbeta[i] * share.value * share.rest);
}

// A block has a value head.
template <class T, class S>
__global__ __launch_bounds__(threads) void delta_gates_weight_grad_kernel(GateSizes s, const Compute<T>* dg,
                                                                          const T* x, const T* rate,
                                                                          const T* bias, Sum<S> drate,
                                                                          Sum<S> dbias) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const Index own = blockIdx.x;
  const C fast = exp_of<C>(load(rate + own)), moves = load(bias + own);
  C of_rate = 0, of_bias = 0;
  for (Index i = own + threadIdx.x * s.in_row; i < s.count; i += blockDim.x * s.in_row) {
    const C d = -dg[i] * fast, moved = load(x + GateAt::of(s, i).decay) + moves;
    of_rate += d * softplus<C>(moved);
    of_bias += d * sigmoid<C>(moved).value;
  }
  of_rate = block_fold(of_rate, C(0), Add(), scratch);
  __syncthreads();
  of_bias = block_fold(of_bias, C(0), Add(), scratch);
  if (threadIdx.x != 0) return;
  if (drate.data) store(drate.data + own, drate.begins ? of_rate : load(drate.data + own) + of_rate);
  if (dbias.data) store(dbias.data + own, dbias.begins ? of_bias : load(dbias.data + own) + of_bias);
}

}  // namespace

template <class T>
void split_mixed(const T* x, T* y, T* gate, std::int64_t rows, std::int64_t first, std::int64_t rest,
                 Stream stream) {
  with_chunk<T>(first % chunk<T> == 0 ? rest : 1, {x, y, gate}, [&](auto n) {
    constexpr int N = decltype(n)::value;
    const auto front = static_cast<unsigned>(first / N), behind = static_cast<unsigned>(rest / N);
    split_mixed_kernel<N, T>
        <<<blocks_for(rows * (front + behind)), threads, 0, stream>>>(x, y, gate, rows, front, behind);
  });
  check_launch("split_mixed");
}

template <class T>
void join_mixed(const T* y, const T* gate, T* x, std::int64_t rows, std::int64_t first, std::int64_t rest,
                Stream stream) {
  with_chunk<T>(first % chunk<T> == 0 ? rest : 1, {x, y, gate}, [&](auto n) {
    constexpr int N = decltype(n)::value;
    const auto front = static_cast<unsigned>(first / N), behind = static_cast<unsigned>(rest / N);
    join_mixed_kernel<N, T>
        <<<blocks_for(rows * (front + behind)), threads, 0, stream>>>(y, gate, x, rows, front, behind);
  });
  check_launch("join_mixed");
}

template <class T>
void delta_heads(const T* x, T* q, T* k, T* v, std::int64_t rows, std::int64_t key, std::int64_t rest,
                 double eps, Stream stream) {
  const auto by = static_cast<Compute<T>>(eps);
  delta_heads_kernel<T><<<grid_of(rows), row_threads, 0, stream>>>(x, q, k, v, key, rest, by);
  check_launch("delta_heads");
}

template <class T>
void delta_heads_grad(const T* dq, const T* dk, const T* dv, const T* x, T* dx, std::int64_t rows,
                      std::int64_t key, std::int64_t rest, double eps, Stream stream) {
  const auto by = static_cast<Compute<T>>(eps);
  delta_heads_grad_kernel<T><<<grid_of(rows), row_threads, 0, stream>>>(dq, dk, dv, x, dx, key, rest, by);
  check_launch("delta_heads_grad");
}

template <class T>
void delta_gates(const GateSizes& s, const T* x, const T* rate, const T* bias, Compute<T>* g,
                 Compute<T>* beta, Stream stream) {
  delta_gates_kernel<T><<<blocks_for(s.count), threads, 0, stream>>>(s, x, rate, bias, g, beta);
  check_launch("delta_gates");
}

template <class T>
void delta_gates_input_grad(const GateSizes& s, const Compute<T>* dg, const Compute<T>* dbeta, const T* x,
                            const T* rate, const T* bias, T* dx, Stream stream) {
  delta_gates_input_grad_kernel<T>
      <<<blocks_for(s.count), threads, 0, stream>>>(s, dg, dbeta, x, rate, bias, dx);
  check_launch("delta_gates_input_grad");
}

template <class T, class S>
void delta_gates_weight_grad(const GateSizes& s, const Compute<T>* dg, const T* x, const T* rate,
                             const T* bias, Sum<S> drate, Sum<S> dbias, Stream stream) {
  delta_gates_weight_grad_kernel<T, S>
      <<<grid_of(s.in_row), threads, 0, stream>>>(s, dg, x, rate, bias, drate, dbias);
  check_launch("delta_gates_weight_grad");
}

#define PRUN_DELTA_HEADS(T)                                                                                  \
  template void split_mixed(const T*, T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream);             \
  template void join_mixed(const T*, const T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream);        \
  template void delta_heads(const T*, T*, T*, T*, std::int64_t, std::int64_t, std::int64_t, double, Stream); \
  template void delta_heads_grad(const T*, const T*, const T*, const T*, T*, std::int64_t, std::int64_t,     \
                                 std::int64_t, double, Stream);                                              \
  template void delta_gates(const GateSizes&, const T*, const T*, const T*, Compute<T>*, Compute<T>*,        \
                            Stream);                                                                         \
  template void delta_gates_input_grad(const GateSizes&, const Compute<T>*, const Compute<T>*, const T*,     \
                                       const T*, const T*, T*, Stream);
#define PRUN_DELTA_GATES_SUM(T, S)                                                                         \
  template void delta_gates_weight_grad(const GateSizes&, const Compute<T>*, const T*, const T*, const T*, \
                                        Sum<S>, Sum<S>, Stream);
PRUN_DELTA_HEADS(double)
PRUN_DELTA_HEADS(float)
PRUN_DELTA_HEADS(bf16)
PRUN_DELTA_HEADS(f16)
PRUN_DELTA_GATES_SUM(double, double)
PRUN_DELTA_GATES_SUM(float, float)
PRUN_DELTA_GATES_SUM(bf16, float)
PRUN_DELTA_GATES_SUM(bf16, bf16)
PRUN_DELTA_GATES_SUM(f16, float)
#undef PRUN_DELTA_HEADS
#undef PRUN_DELTA_GATES_SUM

}  // namespace prun::cuda
