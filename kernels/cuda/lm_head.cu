#include "cuda/lm_head.hpp"

#include "cuda/math.cuh"
#include "cuda/number_sum.cuh"

namespace prun::cuda {
namespace {

inline constexpr int row_threads = 512;
// Loads that a thread has in flight, as many as its registers hold beside what it computes.
template <class T>
inline constexpr int row_unroll = sizeof(T) == 8 ? 2 : 6;

// exp(x) for x <= 0: what bf16 logits need, or what the type can hold.
template <class T>
__device__ __forceinline__ Compute<T> exp_below(Compute<T> x) {
  if constexpr (std::is_same_v<T, bf16>)
    return __expf(x);
  else
    return exp_of(x);
}

// A row of logits and the shared memory that holds its beginning, so that it is read from there the second
// time. Each thread finds there what it has put there itself.
template <class T, int N>
struct Row {
  using C = Compute<T>;
  T* data;
  std::int64_t vocab;
  T* held;
  std::int64_t held_count;  // a multiple of N

  // Calls each(N, first element, values) for this thread's chunks.
  template <bool keep, class Each>
  __device__ void scan(const Each& each) const {
    constexpr int unroll = row_unroll<T>;
    const std::int64_t whole = vocab / N * N;
    for (std::int64_t begin = static_cast<std::int64_t>(threadIdx.x) * N; begin < whole;
         begin += unroll * row_threads * N) {
      Pack<T, N> fetched[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const std::int64_t at = begin + u * row_threads * N;
        if (at >= whole) continue;
        fetched[u] = load_pack<N>(!keep && at < held_count ? held + at : data + at);
        if (keep && at < held_count) store_pack(held + at, fetched[u]);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const std::int64_t at = begin + u * row_threads * N;
        if (at < whole) each(at, unpack(fetched[u]));
      }
    }
    if (const std::int64_t last = whole + threadIdx.x; last < vocab) each(last, load_lanes<1>(data + last));
  }
};

// The largest value that a thread has seen, and the sum of exponentials above it.
template <class T>
struct Running {
  using C = Compute<T>;
  C largest = -INFINITY;
  C sum = 0;

  template <int N>
  __device__ void add(const Lanes<C, N>& x) {
    C most = largest;
#pragma unroll
    for (int i = 0; i < N; ++i) most = Larger()(most, x[i]);
    if (most == -INFINITY) {  // nothing but that, or NaN
#pragma unroll
      for (int i = 0; i < N; ++i) sum += exp_below<T>(x[i]);
      return;
    }
    if (most > largest) {
      sum *= exp_below<T>(largest - most);
      largest = most;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp_below<T>(x[i] - largest);
  }
};

template <class C>
struct RowSum {
  C largest;
  double sum;
};

// The same in every thread.
template <class T>
__device__ RowSum<Compute<T>> fold(const Running<T>& mine) {
  using C = Compute<T>;
  __shared__ C most[32];
  __shared__ double sums[32];
  const C largest = block_fold(mine.largest, C(-INFINITY), Larger(), most);
  const C share = mine.largest == -INFINITY ? mine.sum : mine.sum * exp_below<T>(mine.largest - largest);
  return {largest, block_fold(static_cast<double>(share), 0.0, Add(), sums)};
}

// Writes exp(x - shift) * factor, and minus `scale` at the target.
template <class T, int N>
__device__ void write_gradient(const Row<T, N>& row, Compute<T> shift, Compute<T> factor, std::int64_t target,
                               Compute<T> scale) {
  row.template scan<false>([&]<int M>(std::int64_t at, Lanes<Compute<T>, M> x) {
#pragma unroll
    for (int i = 0; i < M; ++i) x[i] = exp_below<T>(x[i] - shift) * factor;
    if (target >= at && target < at + M) {
#pragma unroll
      for (int i = 0; i < M; ++i)
        if (at + i == target) x[i] -= scale;
    }
    store_lanes(row.data + at, x);
  });
}

template <class T, int N>
__device__ void clear(const Row<T, N>& row) {
  for (std::int64_t i = threadIdx.x; i < row.vocab; i += row_threads) store(row.data + i, Compute<T>(0));
}

extern __shared__ uint4 shared_row[];

template <int N, class T>
__global__ __launch_bounds__(row_threads, 2) void cross_entropy_kernel(Logits<T> logits, const double* scale,
                                                                       double* losses, std::int64_t held) {
  using C = Compute<T>;
  const std::int64_t target = logits.targets[blockIdx.x];
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab,
                         reinterpret_cast<T*>(shared_row), held};
  if (target < 0 || target >= logits.vocab) {
    clear(row);
    if (threadIdx.x == 0) losses[blockIdx.x] = target < 0 ? 0.0 : NAN;
    return;
  }
  const double wanted = static_cast<double>(load(row.data + target));
  Running<T> running;
  row.template scan<true>([&]<int M>(std::int64_t, const Lanes<C, M>& x) { running.add(x); });
  const RowSum<C> sum = fold(running);
  write_gradient(row, sum.largest, static_cast<C>(*scale / sum.sum), target, static_cast<C>(*scale));
  if (threadIdx.x == 0) losses[blockIdx.x] = static_cast<double>(sum.largest) + log(sum.sum) - wanted;
}

template <int N, class T>
__global__ __launch_bounds__(row_threads, 2) void scan_kernel(Logits<T> logits, std::int64_t first,
                                                              std::int64_t whole, Compute<T>* largest,
                                                              Compute<T>* sums, Compute<T>* wanted) {
  using C = Compute<T>;
  const std::int64_t target = logits.targets[blockIdx.x], place = target - first;
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab, nullptr, 0};
  Running<T> running;
  row.template scan<true>([&]<int M>(std::int64_t, const Lanes<C, M>& x) { running.add(x); });
  const RowSum<C> sum = fold(running);
  if (threadIdx.x != 0) return;
  largest[blockIdx.x] = sum.largest;
  sums[blockIdx.x] = static_cast<C>(sum.sum);
  const bool here = target >= 0 && place >= 0 && place < logits.vocab;
  wanted[blockIdx.x] = target >= whole ? C(NAN) : here ? load(row.data + place) : C(0);
}

template <int N, class T>
__global__ __launch_bounds__(row_threads, 2) void grad_kernel(Logits<T> logits, std::int64_t first,
                                                              const Compute<T>* lse, const double* scale) {
  const std::int64_t target = logits.targets[blockIdx.x];
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab, nullptr, 0};
  if (target < 0)
    clear(row);
  else
    write_gradient(row, lse[blockIdx.x], static_cast<Compute<T>>(*scale), target - first,
                   static_cast<Compute<T>>(*scale));
}

template <class C>
__global__ void rescale_kernel(const C* largest, const C* gmax, const C* sum, C* scaled, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows) scaled[i] = sum[i] * exp_of(largest[i] - gmax[i]);
}

template <class C>
__global__ void loss_kernel(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets,
                            double* losses, C* lse, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  const double value = static_cast<double>(gmax[i]) + log(static_cast<double>(sum[i]));
  lse[i] = static_cast<C>(value);
  losses[i] = targets[i] < 0 ? 0 : value - static_cast<double>(wanted[i]);
}

// Calls launch with the chunk that the rows allow.
template <class T, class Launch>
void with_row_chunk(const char* name, const Logits<T>& logits, Launch launch) {
  if (logits.rows == 0) return;
  with_chunk<T>(logits.stride, {logits.data}, launch);
  check_launch(name);
}

// Bytes of shared memory for a row: the whole row twice a multiprocessor, or else as much as one block can
// have.
template <class T>
std::int64_t held_bytes(std::int64_t vocab) {
  int device = 0, block = 0, all = 0, reserved = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device),
        "cudaDeviceGetAttribute");
  constexpr std::int64_t folds = 1024;  // what the sums over the block take
  const std::int64_t row = vocab / chunk<T> * 16, half = (all / 2 - reserved - folds) / 16 * 16;
  return std::min(row, row <= half ? half : (block - folds) / 16 * 16);
}

}  // namespace

template <class T>
void cross_entropy(const Logits<T>& logits, const double* scale, double* loss, void* workspace,
                   Stream stream) {
  double* losses = static_cast<double*>(workspace);
  with_row_chunk("cross_entropy", logits, [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t bytes = held_bytes<T>(logits.vocab),
                       held = bytes / static_cast<std::int64_t>(sizeof(T));
    check(cudaFuncSetAttribute(cross_entropy_kernel<N, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "shared memory for cross_entropy");
    cross_entropy_kernel<N><<<grid_of(logits.rows), row_threads, static_cast<std::size_t>(bytes), stream>>>(
        logits, scale, losses, held);
  });
  if (logits.rows > 0) add_numbers("cross_entropy", stream, losses, logits.rows, loss);
}

template <class T>
void lm_head_scan(const Logits<T>& logits, std::int64_t first, std::int64_t whole, Compute<T>* largest,
                  Compute<T>* sum, Compute<T>* wanted, Stream stream) {
  with_row_chunk("lm_head_scan", logits, [&]<int N>(std::integral_constant<int, N>) {
    scan_kernel<N>
        <<<grid_of(logits.rows), row_threads, 0, stream>>>(logits, first, whole, largest, sum, wanted);
  });
}

template <class C>
void lm_head_rescale(const C* largest, const C* gmax, const C* sum, C* scaled, std::int64_t rows,
                     Stream stream) {
  if (rows == 0) return;
  rescale_kernel<<<grid_of(ceil_div(rows, 256)), 256, 0, stream>>>(largest, gmax, sum, scaled, rows);
  check_launch("lm_head_rescale");
}

template <class C>
void lm_head_loss(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets, double* loss,
                  C* lse, std::int64_t rows, void* workspace, Stream stream) {
  if (rows == 0) return;
  double* losses = static_cast<double*>(workspace);
  loss_kernel<<<grid_of(ceil_div(rows, 256)), 256, 0, stream>>>(gmax, sum, wanted, targets, losses, lse,
                                                                rows);
  check_launch("lm_head_loss");
  add_numbers("lm_head_loss", stream, losses, rows, loss);
}

template <class T>
void lm_head_grad(const Logits<T>& logits, std::int64_t first, const Compute<T>* lse, const double* scale,
                  Stream stream) {
  with_row_chunk("lm_head_grad", logits, [&]<int N>(std::integral_constant<int, N>) {
    grad_kernel<N><<<grid_of(logits.rows), row_threads, 0, stream>>>(logits, first, lse, scale);
  });
}

#define PRUN_LM_HEAD(T)                                                                                 \
  template void cross_entropy<T>(const Logits<T>&, const double*, double*, void*, Stream);              \
  template void lm_head_scan<T>(const Logits<T>&, std::int64_t, std::int64_t, Compute<T>*, Compute<T>*, \
                                Compute<T>*, Stream);                                                   \
  template void lm_head_grad<T>(const Logits<T>&, std::int64_t, const Compute<T>*, const double*, Stream)
PRUN_LM_HEAD(double);
PRUN_LM_HEAD(float);
PRUN_LM_HEAD(bf16);
#define PRUN_LM_HEAD_ROWS(C)                                                                    \
  template void lm_head_rescale<C>(const C*, const C*, const C*, C*, std::int64_t, Stream);     \
  template void lm_head_loss<C>(const C*, const C*, const C*, const std::int32_t*, double*, C*, \
                                std::int64_t, void*, Stream)
PRUN_LM_HEAD_ROWS(double);
PRUN_LM_HEAD_ROWS(float);

}  // namespace prun::cuda
