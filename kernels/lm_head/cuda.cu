#include "lm_head/cuda.hpp"

#include "cuda/async.cuh"
#include "cuda/math.cuh"
#include "lm_head/cuda_number_sum.cuh"

namespace prun::cuda {
namespace {

inline constexpr int most_row_threads = 1024;
// Counts loads that a thread has in flight, as many as its registers hold beside its computation.
template <class T>
inline constexpr int row_unroll = sizeof(T) == 8 ? 2 : 4;

// Reads a row of logits, cut into chunks that the threads of a block take in turn. Its first chunks are
// copied to shared memory when it is read for the first time and found there the second time, each by the
// thread that has copied it.
template <class T, int N>
struct Row {
  using C = Compute<T>;
  T* data;
  std::int64_t vocab;
  T* held;
  int held_chunks;

  // Calls each(first element, values) for this thread's part of the row.
  template <class Each>
  __device__ void scan_first(const Each& each) const {
    constexpr int groups = 4;
    const int turns = held_turns(), length = (turns + groups - 1) / groups;
    if constexpr (N * sizeof(T) == 16) {
#pragma unroll
      for (int group = 0; group < groups; ++group) {
        for (int turn = group * length; turn < min((group + 1) * length, turns); ++turn)
          copy_async(held + at(turn), data + at(turn));
        commit_copies();
      }
      const auto scan_group = [&]<int group>(std::integral_constant<int, group>) {
        wait_copies<groups - 1 - group>();
        scan_held(group * length, min((group + 1) * length, turns), each);
      };
      scan_group(std::integral_constant<int, 0>());
      scan_group(std::integral_constant<int, 1>());
      scan_group(std::integral_constant<int, 2>());
      scan_group(std::integral_constant<int, 3>());
    }
    scan_rest(each);
  }
  template <class Each>
  __device__ void scan_again(const Each& each) const {
    scan_held(0, held_turns(), each);
    scan_rest(each);
  }

 private:
  // Returns the first element of this thread's chunk of some turn.
  __device__ std::int64_t at(int turn) const {
    return static_cast<std::int64_t>(turn * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * N;
  }
  __device__ int held_turns() const {
    const int threads = static_cast<int>(blockDim.x);
    return (held_chunks + threads - 1 - static_cast<int>(threadIdx.x)) / threads;
  }
  template <class Each>
  __device__ void scan_held(int begin, int end, const Each& each) const {
#pragma unroll 2
    for (int turn = begin; turn < end; ++turn) each(at(turn), load_lanes<N>(held + at(turn)));
  }
  // Reads the chunks that are not held, row_unroll loads in flight, and the elements behind the last chunk.
  template <class Each>
  __device__ void scan_rest(const Each& each) const {
    constexpr int unroll = row_unroll<T>;
    const std::int64_t whole = vocab / N * N, step = static_cast<std::int64_t>(blockDim.x) * N;
    for (std::int64_t begin = (held_chunks + static_cast<std::int64_t>(threadIdx.x)) * N; begin < whole;
         begin += unroll * step) {
      Pack<T, N> fetched[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (begin + u * step < whole) fetched[u] = load_pack<N>(data + begin + u * step);
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (begin + u * step < whole) each(begin + u * step, unpack(fetched[u]));
    }
    if (const std::int64_t last = whole + threadIdx.x; last < vocab) each(last, load_lanes<1>(data + last));
  }
};

// Holds the largest value that a thread has seen, and the sum of exponentials above it.
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
    if (most == -INFINITY) {  // all are -infinity or NaN
#pragma unroll
      for (int i = 0; i < N; ++i) sum += exp_of<T>(x[i]);
      return;
    }
    if (most > largest) {
      sum *= exp_of<T>(largest - most);
      largest = most;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp_of<T>(x[i] - largest);
  }
};

template <class C>
struct RowSum {
  C largest;
  double sum;
};

// Returns the same in every thread.
template <class T>
__device__ RowSum<Compute<T>> fold(const Running<T>& mine) {
  using C = Compute<T>;
  __shared__ C most[32];
  __shared__ double sums[32];
  const C largest = block_fold(mine.largest, C(-INFINITY), Larger(), most);
  const C share = mine.largest == -INFINITY ? mine.sum : mine.sum * exp_of<T>(mine.largest - largest);
  return {largest, block_fold(static_cast<double>(share), 0.0, Add(), sums)};
}

// Sums a row's logits, with the same result in every thread; it does nothing without label smoothing.
template <bool smooths>
struct Total {
  double mine = 0;

  template <class C, int N>
  __device__ void add(const Lanes<C, N>& x) {
    if constexpr (smooths) {
      C sum = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) sum += x[i];
      mine += static_cast<double>(sum);
    }
  }
  __device__ double fold() const {
    if constexpr (!smooths) return 0;
    __shared__ double totals[32];
    return block_fold(mine, 0.0, Add(), totals);
  }
};

// Writes exp(x - shift) * factor - less, and minus `scale` at the target; `less` counts with label smoothing.
// Where x is bounded, all is multiplied by its slope; `per_cap` is 1 / softcap then, else 0.
template <bool smooths, class T, int N>
__device__ void write_gradient(const Row<T, N>& row, Compute<T> shift, Compute<T> factor, std::int64_t target,
                               Compute<T> scale, Compute<T> less, Compute<T> per_cap = 0) {
  using C = Compute<T>;
  row.scan_again([&]<int M>(std::int64_t at, Lanes<C, M> x) {
    [[maybe_unused]] C slope[M];
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if constexpr (smooths) {
        const C of_cap = per_cap * x[i];  // x was rounded to T, perhaps beyond the cap
        slope[i] = of_cap > C(-1) && of_cap < C(1) ? (C(1) - of_cap) * (C(1) + of_cap) : C(0);
      }
      x[i] = exp_of<T>(x[i] - shift) * factor;
      if constexpr (smooths) x[i] -= less;
    }
    if (target >= at && target < at + M) {
#pragma unroll
      for (int i = 0; i < M; ++i)
        if (at + i == target) x[i] -= scale;
    }
    if constexpr (smooths)
#pragma unroll
      for (int i = 0; i < M; ++i) x[i] *= slope[i];
    store_lanes(row.data + at, x);
  });
}

template <class C>
__device__ C per_cap(const HeadRegular& by) {
  return by.softcap > 0 ? static_cast<C>(1 / by.softcap) : C(0);
}

// A block takes a row.
template <class T>
__global__ __launch_bounds__(512) void bound_kernel(Logits<T> logits, Compute<T> cap) {
  T* const row = logits.data + blockIdx.x * logits.stride;
  for (std::int64_t i = threadIdx.x; i < logits.vocab; i += blockDim.x)
    store(row + i, cap * tanh(load(row + i) / cap));
}

template <class T, int N>
__device__ void clear(const Row<T, N>& row) {
  for (std::int64_t i = threadIdx.x; i < row.vocab; i += blockDim.x) store(row.data + i, Compute<T>(0));
}

extern __shared__ uint4 shared_row[];

template <int N, bool regular, class T>
__global__ __launch_bounds__(most_row_threads) void cross_entropy_kernel(Logits<T> logits,
                                                                         const double* scale, double* losses,
                                                                         int held_chunks, HeadRegular by) {
  using C = Compute<T>;
  const std::int64_t target = logits.targets[blockIdx.x];
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab,
                         reinterpret_cast<T*>(shared_row), held_chunks};
  if (target < 0 || target >= logits.vocab) {
    clear(row);
    if (threadIdx.x == 0) losses[blockIdx.x] = target < 0 ? 0.0 : NAN;
    return;
  }
  const double wanted = static_cast<double>(load(row.data + target));
  Running<T> running;
  Total<regular> all;
  row.scan_first([&]<int M>(std::int64_t, const Lanes<C, M>& x) {
    running.add(x);
    all.add(x);
  });
  const RowSum<C> sum = fold(running);
  if constexpr (!regular) {
    write_gradient<false>(row, sum.largest, static_cast<C>(*scale / sum.sum), target, static_cast<C>(*scale),
                          C(0));
    if (threadIdx.x == 0) losses[blockIdx.x] = static_cast<double>(sum.largest) + log(sum.sum) - wanted;
  } else {
    const double lse = static_cast<double>(sum.largest) + log(sum.sum),
                 share = by.smoothing / static_cast<double>(by.words), total = all.fold();
    write_gradient<true>(row, sum.largest, static_cast<C>(*scale * (1 + 2 * by.z * lse) / sum.sum), target,
                         static_cast<C>(*scale * (1 - by.smoothing)), static_cast<C>(*scale * share),
                         per_cap<C>(by));
    if (threadIdx.x == 0)
      losses[blockIdx.x] = lse - (1 - by.smoothing) * wanted - share * total + by.z * lse * lse;
  }
}

template <int N, bool regular, class T>
__global__ __launch_bounds__(most_row_threads) void scan_kernel(Logits<T> logits, std::int64_t first,
                                                                std::int64_t whole, Compute<T>* largest,
                                                                Compute<T>* sums, Compute<T>* wanted,
                                                                HeadRegular by) {
  using C = Compute<T>;
  const std::int64_t target = logits.targets[blockIdx.x], place = target - first;
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab, nullptr, 0};
  Running<T> running;
  Total<regular> all;
  row.scan_first([&]<int M>(std::int64_t, const Lanes<C, M>& x) {
    running.add(x);
    all.add(x);
  });
  const RowSum<C> sum = fold(running);
  const double total = all.fold();
  if (threadIdx.x != 0) return;
  largest[blockIdx.x] = sum.largest;
  sums[blockIdx.x] = static_cast<C>(sum.sum);
  const bool here = target >= 0 && place >= 0 && place < logits.vocab;
  C found = here ? load(row.data + place) : C(0);
  if constexpr (regular)
    found = static_cast<C>((1 - by.smoothing) * static_cast<double>(found) +
                           by.smoothing / static_cast<double>(by.words) * total);
  wanted[blockIdx.x] = target >= whole ? C(NAN) : found;
}

template <int N, bool regular, class T>
__global__ __launch_bounds__(most_row_threads) void grad_kernel(Logits<T> logits, std::int64_t first,
                                                                const Compute<T>* lse, const double* scale,
                                                                HeadRegular by) {
  const std::int64_t target = logits.targets[blockIdx.x];
  const Row<T, N> row = {logits.data + blockIdx.x * logits.stride, logits.vocab, nullptr, 0};
  if (target < 0) {
    clear(row);
    return;
  }
  using C = Compute<T>;
  const C shift = lse[blockIdx.x];
  if constexpr (regular)
    write_gradient<true>(row, shift, static_cast<C>(*scale * (1 + 2 * by.z * static_cast<double>(shift))),
                         target - first, static_cast<C>(*scale * (1 - by.smoothing)),
                         static_cast<C>(*scale * by.smoothing / static_cast<double>(by.words)),
                         per_cap<C>(by));
  else
    write_gradient<false>(row, shift, static_cast<C>(*scale), target - first, static_cast<C>(*scale), C(0));
}

template <class C>
__global__ void rescale_kernel(const C* largest, const C* gmax, const C* sum, C* scaled, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows) scaled[i] = sum[i] * exp_of<C>(largest[i] - gmax[i]);
}

template <class C>
__global__ void loss_kernel(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets,
                            double* losses, C* lse, std::int64_t rows, double z) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  const double value = static_cast<double>(gmax[i]) + log(static_cast<double>(sum[i]));
  lse[i] = static_cast<C>(value);
  losses[i] = targets[i] < 0 ? 0 : value - static_cast<double>(wanted[i]);
  if (z != 0 && targets[i] >= 0) losses[i] += z * value * value;
}

// Each group has a block, which looks at all rows: so sums have a fixed order.
template <class C>
__global__ __launch_bounds__(1024) void groups_kernel(const C* gmax, const C* sum, const C* wanted,
                                                      const std::int32_t* targets, const std::int32_t* groups,
                                                      double* sums, std::int64_t rows, double z) {
  __shared__ double scratch[32];
  const auto group = static_cast<std::int32_t>(blockIdx.x);
  double loss = 0, count = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    if (targets[i] < 0 || groups[i] != group) continue;
    const double lse = static_cast<double>(gmax[i]) + log(static_cast<double>(sum[i]));
    loss += lse - static_cast<double>(wanted[i]) + z * lse * lse;
    count += 1;
  }
  loss = block_fold(loss, 0.0, Add(), scratch);
  __syncthreads();
  count = block_fold(count, 0.0, Add(), scratch);
  if (threadIdx.x != 0) return;
  sums[2 * group] += loss;
  sums[2 * group + 1] += count;
}

// Calls launch with a type that says whether anything is added to the loss.
template <class Launch>
void with_regular(const HeadRegular& by, Launch launch) {
  if (by.any())
    launch(std::true_type());
  else
    launch(std::false_type());
}

// Calls launch with the chunk that the rows allow.
template <class T, class Launch>
void with_row_chunk(const char* name, const Logits<T>& logits, Launch launch) {
  if (logits.rows == 0) return;
  with_chunk<T>(logits.stride, {logits.data}, launch);
  check_launch(name);
}

// Says how a block holds its row: the whole of it in blocks of half the size, two to a multiprocessor, or
// else as much as fits into one.
struct Holding {
  int chunks;
  int threads;

  explicit Holding(std::int64_t row_chunks) {
    const auto attribute = [](cudaDeviceAttr which) {
      int device = 0, value = 0;
      check(cudaGetDevice(&device), "cudaGetDevice");
      check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
      return value;
    };
    constexpr int folds = 1024;  // counts bytes that the sums over the block take
    const int all = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    const int half = (all / 2 - attribute(cudaDevAttrReservedSharedMemoryPerBlock) - folds) / 16;
    const int whole = (attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - folds) / 16;
    chunks = static_cast<int>(std::min<std::int64_t>(row_chunks, whole));
    threads = chunks <= half ? most_row_threads / 2 : most_row_threads;
  }
};

inline constexpr int streaming_threads = 512;  // for kernels that read a row once

// Takes a warp for each row of the weight and of the batch.
template <int N, class T>
__global__ __launch_bounds__(256) void logits_kernel(const T* x, const T* weight, const T* bias,
                                                     const std::int32_t* targets, Compute<T>* logits,
                                                     HeadLogitsShape shape) {
  const std::int64_t word = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32,
                     row = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (word >= shape.vocab) return;
  int position = -1;
  for (std::int64_t i = lane; i < shape.seq; i += 32)
    if (targets[row * shape.seq + i] >= 0) position = static_cast<int>(i);
  position = warp_fold(position, [](int a, int b) { return a > b ? a : b; });
  Compute<T> sum = 0;
  for (std::int64_t k = lane * N; position >= 0 && k < shape.width; k += 32 * N) {
    const Lanes<Compute<T>, N> a = load_lanes<N>(x + (row * shape.seq + position) * shape.width + k);
    const Lanes<Compute<T>, N> b = load_lanes<N>(weight + word * shape.width + k);
#pragma unroll
    for (int l = 0; l < N; ++l) sum += a[l] * b[l];
  }
  sum = warp_fold(sum, Add());
  if (bias) sum += load(bias + word);
  const auto cap = static_cast<Compute<T>>(shape.softcap);
  if (lane == 0) logits[row * shape.vocab + word] = cap > 0 ? cap * tanh(sum / cap) : sum;
}

}  // namespace

template <class T>
void bound_logits(const Logits<T>& logits, double softcap, Stream stream) {
  if (softcap == 0 || logits.rows == 0) return;
  bound_kernel<<<grid_of(logits.rows), 512, 0, stream>>>(logits, static_cast<Compute<T>>(softcap));
  check_launch("bound_logits");
}

template <class T>
void cross_entropy(const Logits<T>& logits, const double* scale, double* loss, void* workspace, Stream stream,
                   const HeadRegular& by) {
  double* losses = static_cast<double*>(workspace);
  with_row_chunk("cross_entropy", logits, [&]<int N>(std::integral_constant<int, N>) {
    const Holding held(N == 1 ? 0 : logits.vocab / N);
    with_regular(by, [&]<bool regular>(std::bool_constant<regular>) {
      check(cudaFuncSetAttribute(cross_entropy_kernel<N, regular, T>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, held.chunks * 16),
            "shared memory for cross_entropy");
      cross_entropy_kernel<N, regular>
          <<<grid_of(logits.rows), held.threads, static_cast<std::size_t>(held.chunks) * 16, stream>>>(
              logits, scale, losses, held.chunks, by);
    });
  });
  if (logits.rows > 0) add_numbers("cross_entropy", stream, losses, logits.rows, loss);
}

template <class T>
void lm_head_scan(const Logits<T>& logits, std::int64_t first, std::int64_t whole, Compute<T>* largest,
                  Compute<T>* sum, Compute<T>* wanted, Stream stream, const HeadRegular& by) {
  with_row_chunk("lm_head_scan", logits, [&]<int N>(std::integral_constant<int, N>) {
    with_regular(by, [&]<bool regular>(std::bool_constant<regular>) {
      scan_kernel<N, regular><<<grid_of(logits.rows), streaming_threads, 0, stream>>>(
          logits, first, whole, largest, sum, wanted, by);
    });
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
                  C* lse, std::int64_t rows, void* workspace, Stream stream, const HeadRegular& by) {
  if (rows == 0) return;
  double* losses = static_cast<double*>(workspace);
  loss_kernel<<<grid_of(ceil_div(rows, 256)), 256, 0, stream>>>(gmax, sum, wanted, targets, losses, lse, rows,
                                                                by.z);
  check_launch("lm_head_loss");
  add_numbers("lm_head_loss", stream, losses, rows, loss);
}

template <class C>
void lm_head_groups(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets,
                    const std::int32_t* groups, double* sums, std::int64_t count, std::int64_t rows,
                    Stream stream, const HeadRegular& by) {
  if (rows == 0) return;
  groups_kernel<<<static_cast<unsigned>(count), 1024, 0, stream>>>(gmax, sum, wanted, targets, groups, sums,
                                                                   rows, by.z);
  check_launch("lm_head_groups");
}

template <class T>
void lm_head_grad(const Logits<T>& logits, std::int64_t first, const Compute<T>* lse, const double* scale,
                  Stream stream, const HeadRegular& by) {
  with_row_chunk("lm_head_grad", logits, [&]<int N>(std::integral_constant<int, N>) {
    with_regular(by, [&]<bool regular>(std::bool_constant<regular>) {
      grad_kernel<N, regular>
          <<<grid_of(logits.rows), streaming_threads, 0, stream>>>(logits, first, lse, scale, by);
    });
  });
}

template <class T>
void lm_head_logits(const T* x, const T* weight, const std::int32_t* targets, Compute<T>* logits,
                    const HeadLogitsShape& shape, Stream stream, const T* bias) {
  constexpr int rows_of_block = 8;  // counts those of the weight, a warp each
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.vocab, rows_of_block)),
                  static_cast<unsigned>(shape.batch));
  with_chunk<T>(shape.width, {x, weight}, [&]<int N>(std::integral_constant<int, N>) {
    logits_kernel<N><<<grid, 32 * rows_of_block, 0, stream>>>(x, weight, bias, targets, logits, shape);
  });
  check_launch("lm_head_logits");
}

#define PRUN_LM_HEAD(T)                                                                                   \
  template void bound_logits<T>(const Logits<T>&, double, Stream);                                        \
  template void cross_entropy<T>(const Logits<T>&, const double*, double*, void*, Stream,                 \
                                 const HeadRegular&);                                                     \
  template void lm_head_scan<T>(const Logits<T>&, std::int64_t, std::int64_t, Compute<T>*, Compute<T>*,   \
                                Compute<T>*, Stream, const HeadRegular&);                                 \
  template void lm_head_grad<T>(const Logits<T>&, std::int64_t, const Compute<T>*, const double*, Stream, \
                                const HeadRegular&);                                                      \
  template void lm_head_logits<T>(const T*, const T*, const std::int32_t*, Compute<T>*,                   \
                                  const HeadLogitsShape&, Stream, const T*)
PRUN_LM_HEAD(double);
PRUN_LM_HEAD(float);
PRUN_LM_HEAD(bf16);
PRUN_LM_HEAD(f16);
#define PRUN_LM_HEAD_ROWS(C)                                                                              \
  template void lm_head_rescale<C>(const C*, const C*, const C*, C*, std::int64_t, Stream);               \
  template void lm_head_loss<C>(const C*, const C*, const C*, const std::int32_t*, double*, C*,           \
                                std::int64_t, void*, Stream, const HeadRegular&);                         \
  template void lm_head_groups<C>(const C*, const C*, const C*, const std::int32_t*, const std::int32_t*, \
                                  double*, std::int64_t, std::int64_t, Stream, const HeadRegular&)
PRUN_LM_HEAD_ROWS(double);
PRUN_LM_HEAD_ROWS(float);

}  // namespace prun::cuda
