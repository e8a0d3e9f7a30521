// The short convolution as kernels/short_conv/cpu.cpp has it. With four taps, which models have, a thread
// walks over a run of positions of neighbouring channels and keeps what it has read; otherwise there is a
// thread for each element, which computes what it needs of others again. Sums have one order in both.
#include "short_conv/cuda.hpp"

#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using Index = std::int64_t;

constexpr int sum_threads = 128;

// Returns a channel's row of the weight.
__device__ inline Index row_of(const ShortConvSizes& s, Index channel) {
  Index row = 0, width = 1;
  for (int d = s.dims - 1; d >= 0; --d) {
    row += (channel % s.own[d] + s.from[d]) * width;
    channel /= s.own[d];
    width *= s.all[d];
  }
  return row;
}

// Is an element of a sample: a row of a channel.
struct At {
  Index sample, row, channel;

  __device__ static At of(const ShortConvSizes& s, Index element) {
    const Index row = element / s.channels;
    return {row / s.seq, row % s.seq, element % s.channels};
  }
  __device__ Index element(const ShortConvSizes& s) const {
    return (sample * s.seq + row) * s.channels + channel;
  }
  // Returns where x has it.
  __device__ Index in_x(const ShortConvSizes& s) const {
    return (sample * s.all_rows() + s.runs.with_ahead(row)) * s.channels + channel;
  }
  // Says how many positions before this one its sum reaches.
  __device__ Index reach(const ShortConvSizes& s) const {
    const Index before = s.runs.position(row) - (s.documents ? s.documents[sample * s.seq + row] : 0);
    return before < s.taps - 1 ? before : s.taps - 1;
  }
};

template <class T>
__device__ Compute<T> sum_at(const ShortConvSizes& s, const T* x, const T* weight, const At& at) {
  const T* const taps = weight + row_of(s, at.channel) * s.taps + s.taps - 1;
  Compute<T> sum = 0;
  for (Index before = at.reach(s); before >= 0; --before)
    sum += load(taps - before) * load(x + at.in_x(s) - before * s.channels);
  return sum;
}

// Returns the gradient of the sum in front of silu.
template <class T, class C = Compute<T>>
__device__ C slope_at(const ShortConvSizes& s, const T* dy, const T* x, const T* weight, const At& at) {
  const C sum = sum_at(s, x, weight, at);
  const Sigmoid<C> by = sigmoid<T>(sum);
  return load(dy + at.element(s)) * by.value * (C(1) + sum * by.rest);
}

__device__ inline Index element_of_thread() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class T>
__global__ void short_conv_kernel(ShortConvSizes s, const T* x, const T* weight, T* y) {
  const Index element = element_of_thread();
  if (element >= s.batch * s.seq * s.channels) return;
  const Compute<T> sum = sum_at(s, x, weight, At::of(s, element));
  store(y + element, sum * sigmoid<T>(sum).value);
}

template <class T>
__global__ void short_conv_tail_kernel(ShortConvSizes s, const T* x, T* tail, Index kept) {
  const Index element = element_of_thread();
  if (element >= s.batch * kept * s.channels) return;
  const Index row = element / s.channels, place = row % kept, first = s.seq > kept ? s.seq - kept : 0,
              position = first + (place - first % kept + kept) % kept;
  const At at{row / kept, position, element % s.channels};
  store(tail + element, position < s.seq ? load(x + at.element(s)) : Compute<T>(0));
}

// A thread has a channel of a sample.
template <class T>
__global__ void short_conv_at_kernel(ShortConvSizes s, const T* x, const T* weight, const double* first,
                                     T* kept_tail, T* y, T* tail, Index kept) {
  const Index thread = element_of_thread();
  if (thread >= s.batch * s.channels) return;
  const Index sample = thread / s.channels, channel = thread % s.channels, begin = static_cast<Index>(*first);
  const T* const taps = weight + row_of(s, channel) * s.taps + s.taps - 1;
  const auto place = [&](Index position) { return (sample * kept + position % kept) * s.channels + channel; };
  for (Index i = 0; i < s.seq; ++i) {
    const At at{sample, i, channel};
    store(kept_tail + place(begin + i), load(x + at.element(s)));
    Compute<T> sum = 0;
    for (Index before = begin + i < s.taps - 1 ? begin + i : s.taps - 1; before >= 0; --before)
      sum += load(taps - before) * load(kept_tail + place(begin + i - before));
    store(y + at.element(s), sum * sigmoid<T>(sum).value);
  }
  for (Index i = 0; i < kept; ++i) store(tail + place(i), load(kept_tail + place(i)));
}

// A thread has an element of x, which may stand in front of a run.
template <class T>
__global__ void short_conv_input_grad_kernel(ShortConvSizes s, const T* dy, const T* x, const T* weight,
                                             T* dx) {
  const Index element = element_of_thread();
  if (element >= s.batch * s.all_rows() * s.channels) return;
  const Index all = element / s.channels, channel = element % s.channels, sample = all / s.all_rows(),
              run = all % s.all_rows() / s.run(), i = all % s.all_rows() % s.run() - s.runs.ahead;
  const T* const taps = weight + row_of(s, channel) * s.taps + s.taps - 1;
  Compute<T> sum = 0;
  for (Index before = s.taps - 1; before >= 0; --before) {
    const At reader{sample, run * s.runs.rows + i + before, channel};
    if (i + before >= 0 && i + before < s.runs.rows && before <= reader.reach(s))
      sum += load(taps - before) * slope_at(s, dy, x, weight, reader);
  }
  store(dx + element, sum);
}

// A block has a tap of a row of the weight, which may be of no channel here: its sum is 0 then.
template <class T, class S>
__global__ __launch_bounds__(sum_threads) void short_conv_weight_grad_kernel(ShortConvSizes s, const T* dy,
                                                                             const T* x, const T* weight,
                                                                             Sum<S> dweight) {
  using C = Compute<S>;
  __shared__ C scratch[32];
  const Index channel = blockIdx.x, before = blockIdx.y;
  C sum = 0;
  for (Index row = threadIdx.x; row < s.batch * s.seq; row += blockDim.x) {
    const At at{row / s.seq, row % s.seq, channel};
    if (before <= at.reach(s))
      sum += static_cast<C>(slope_at(s, dy, x, weight, at)) *
             static_cast<C>(load(x + at.in_x(s) - before * s.channels));
  }
  sum = block_fold(sum, C(0), Add(), scratch);
  S* const to = dweight.data + row_of(s, channel) * s.taps + s.taps - 1 - before;
  if (threadIdx.x == 0) store(to, dweight.begins ? sum : load(to) + sum);
}

// ---------------------------------------------------------------- four taps

constexpr int usual_taps = 4, before_all = usual_taps - 1, run_threads = 128, run = 32, long_run = 64;

// Counts the neighbours of a thread, 4 bytes where they are short.
template <class T>
inline constexpr int neighbours = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;

// Walks over positions of neighbouring channels of a sample.
template <class T, class C = Compute<T>>
struct Walk {
  static constexpr int n = neighbours<T>;
  const ShortConvSizes& s;
  const T* own;  // the channels' first position
  Index sample;
  Lanes<C, n> tap[usual_taps];  // that of this position first, then those before it
  Lanes<C, n> x[usual_taps];    // likewise
  Lanes<C, n> sum;

  __device__ Walk(const ShortConvSizes& sizes, const T* from, const T* weight, Index of_sample, Index channel)
      : s(sizes), own(from + of_sample * sizes.seq * sizes.channels + channel), sample(of_sample) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const T* const row = weight + row_of(s, channel + i) * usual_taps + before_all;
#pragma unroll
      for (int before = 0; before < usual_taps; ++before) tap[before][i] = load(row - before);
    }
  }

  // Reads what positions from `first` on see of those before it.
  __device__ void begin(Index first) {
#pragma unroll
    for (int before = 1; before <= before_all; ++before)
      x[before - 1] = first >= before ? load_lanes<n>(own + (first - before) * s.channels) : Lanes<C, n>{};
  }

  // Computes the sum of the next position. What it does not see becomes zero in x.
  __device__ Lanes<C, n> meet(Index position, Lanes<C, n> (&seen)[usual_taps]) {
#pragma unroll
    for (int before = before_all; before > 0; --before) x[before] = x[before - 1];
    x[0] = load_lanes<n>(own + position * s.channels);
    const Index reach = position - (s.documents ? s.documents[sample * s.seq + position] : 0);
    sum = Lanes<C, n>{};
#pragma unroll
    for (int before = before_all; before >= 0; --before)
#pragma unroll
      for (int i = 0; i < n; ++i) {
        seen[before][i] = before <= reach ? x[before][i] : C(0);
        sum[i] += tap[before][i] * seen[before][i];
      }
    return sum;
  }

  __device__ static Lanes<C, n> slopes(const Lanes<C, n>& sum, const T* dy) {
    Lanes<C, n> slope = load_lanes<n>(dy);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const Sigmoid<C> by = sigmoid<T>(sum[i]);
      slope[i] *= by.value * (C(1) + sum[i] * by.rest);
    }
    return slope;
  }
};

// Is a thread's run of positions.
template <class T>
struct Run {
  Index channel, sample, first, end;
  bool there;

  __device__ explicit Run(const ShortConvSizes& s) {
    const Index runs = (s.seq + run - 1) / run;
    channel = (static_cast<Index>(blockIdx.y) * blockDim.x + threadIdx.x) * neighbours<T>;
    sample = blockIdx.x / runs;
    first = blockIdx.x % runs * run;
    end = first + run < s.seq ? first + run : s.seq;
    there = channel < s.channels;
  }
};

template <class T>
__global__ __launch_bounds__(run_threads) void short_conv_run_kernel(ShortConvSizes s, const T* x,
                                                                     const T* weight, T* y) {
  const Run<T> mine(s);
  if (!mine.there) return;
  Walk<T> walk(s, x, weight, mine.sample, mine.channel);
  walk.begin(mine.first);
  T* const to = y + (walk.own - x);
  Lanes<Compute<T>, Walk<T>::n> seen[usual_taps];
#pragma unroll 4
  for (Index p = mine.first; p < mine.end; ++p) {
    Lanes<Compute<T>, Walk<T>::n> sum = walk.meet(p, seen);
#pragma unroll
    for (int i = 0; i < Walk<T>::n; ++i) sum[i] *= sigmoid<T>(sum[i]).value;
    store_lanes(to + p * s.channels, sum);
  }
}

template <class T, class C = Compute<T>>
__global__ __launch_bounds__(run_threads) void short_conv_run_input_grad_kernel(ShortConvSizes s, const T* dy,
                                                                                const T* x, const T* weight,
                                                                                T* dx) {
  constexpr int n = Walk<T>::n;
  const Run<T> mine(s);
  if (!mine.there) return;
  Walk<T> walk(s, x, weight, mine.sample, mine.channel);
  walk.begin(mine.first);
  const Index own = walk.own - x;
  Lanes<C, n> seen[usual_taps], slope[usual_taps] = {};  // of the last position that reads, and those before
  Index reach[usual_taps] = {};
#pragma unroll 4
  for (Index p = mine.first; p < mine.end + before_all; ++p) {
#pragma unroll
    for (int before = before_all; before > 0; --before) {
      slope[before] = slope[before - 1];
      reach[before] = reach[before - 1];
    }
    reach[0] = -1;
    if (p < s.seq) {
      slope[0] = Walk<T>::slopes(walk.meet(p, seen), dy + own + p * s.channels);
      reach[0] = p - (s.documents ? s.documents[mine.sample * s.seq + p] : 0);
    }
    if (p < mine.first + before_all) continue;
    Lanes<C, n> sum = {};
#pragma unroll
    for (int before = before_all; before >= 0; --before)
#pragma unroll
      for (int i = 0; i < n; ++i)
        sum[i] +=
            before <= reach[before_all - before] ? walk.tap[before][i] * slope[before_all - before][i] : C(0);
    store_lanes(dx + own + (p - before_all) * s.channels, sum);
  }
}

// A block has 32 threads' channels, and as many threads for each that share runs of positions.
template <class T, class S>
__global__ __launch_bounds__(1024) void short_conv_run_weight_grad_kernel(ShortConvSizes s, const T* dy,
                                                                          const T* x, const T* weight,
                                                                          Sum<S> dweight) {
  using C = Compute<S>;
  constexpr int n = Walk<T>::n, sums = 32 * n * usual_taps;
  __shared__ C parts[32][sums];
  const int lane = static_cast<int>(threadIdx.x % 32), turn = static_cast<int>(threadIdx.x / 32);
  const Index channel = (Index{blockIdx.x} * 32 + lane) * n, runs = (s.seq + long_run - 1) / long_run;
  C sum[usual_taps][n] = {};
  for (Index i = turn; i < runs * s.batch && channel < s.channels; i += 32) {
    const Index first = i % runs * long_run, end = first + long_run < s.seq ? first + long_run : s.seq;
    Walk<T> walk(s, x, weight, i / runs, channel);
    walk.begin(first);
    const T* const from = dy + (walk.own - x);
    Lanes<Compute<T>, n> seen[usual_taps];
#pragma unroll 4
    for (Index p = first; p < end; ++p) {
      const Lanes<Compute<T>, n> slope = Walk<T>::slopes(walk.meet(p, seen), from + p * s.channels);
#pragma unroll
      for (int before = 0; before < usual_taps; ++before)
#pragma unroll
        for (int c = 0; c < n; ++c)
          sum[before][c] += static_cast<C>(slope[c]) * static_cast<C>(seen[before][c]);
    }
  }
#pragma unroll
  for (int before = 0; before < usual_taps; ++before)
#pragma unroll
    for (int c = 0; c < n; ++c) parts[turn][(before * n + c) * 32 + lane] = sum[before][c];
  __syncthreads();
  if (threadIdx.x >= sums) return;
  const int before = static_cast<int>(threadIdx.x) / (32 * n), c = static_cast<int>(threadIdx.x) / 32 % n;
  const Index own = (Index{blockIdx.x} * 32 + lane) * n + c;
  if (own >= s.channels) return;
  C all = 0;
  for (int i = 0; i < 32; ++i) all += parts[i][threadIdx.x];
  S* const to = dweight.data + row_of(s, own) * usual_taps + before_all - before;
  store(to, dweight.begins ? all : load(to) + all);
}

// Says whether threads may walk: rows begin at multiples of what they read at a time.
template <class T>
bool may_walk(const ShortConvSizes& s, std::initializer_list<const void*> pointers) {
  constexpr std::size_t bytes = neighbours<T> * sizeof(T);
  const bool whole = s.runs.rows == s.seq && s.runs.ahead == 0 && s.runs.first == 0;
  return whole && s.taps == usual_taps && s.channels % neighbours<T> == 0 &&
         std::all_of(pointers.begin(), pointers.end(),
                     [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; });
}

template <class T>
dim3 runs_of(const ShortConvSizes& s) {
  return dim3(grid_of(s.batch * ceil_div(s.seq, run)),
              grid_of(ceil_div(s.channels, run_threads * neighbours<T>)));
}

template <class S>
__global__ void clear_kernel(S* to, Index count) {
  const Index element = element_of_thread();
  if (element < count) store(to + element, Compute<S>(0));
}

constexpr int threads = 256;

unsigned blocks_for(Index elements) { return grid_of(ceil_div(elements, threads)); }

}  // namespace

ShortConvSizes ShortConvSizes::of(const Tensor& x, const Tensor& weight, const Tensor* documents) {
  ShortConvSizes s{x.dim[0], x.dim[1], x.inner(x.rank - 2), weight.inner(1), weight.outer(2)};
  s.dims = x.rank - 2;
  for (int d = 0; d < s.dims; ++d) {
    s.own[d] = x.dim[d + 2];
    s.all[d] = weight.dim[d];
    s.from[d] = x.start[d + 2] - weight.start[d];
  }
  if (documents) s.documents = documents->as<const std::int32_t>();
  s.runs = SequenceRuns::whole(s.seq);
  return s;
}

ShortConvSizes ShortConvSizes::of_runs(const Tensor& x, const Tensor& weight, const Tensor* documents,
                                       const Tensor& own, std::int64_t rows, std::int64_t chunks) {
  ShortConvSizes s = of(x, weight, documents);
  s.seq = own.dim[1];
  s.runs = SequenceRuns::of(own, rows, chunks, s.taps - 1);
  return s;
}

template <class T>
void short_conv(const ShortConvSizes& s, const T* x, const T* weight, T* y, T* tail, std::int64_t kept,
                Stream stream) {
  if (may_walk<T>(s, {x, y})) {
    short_conv_run_kernel<T><<<runs_of<T>(s), run_threads, 0, stream>>>(s, x, weight, y);
  } else {
    short_conv_kernel<T><<<blocks_for(s.batch * s.seq * s.channels), threads, 0, stream>>>(s, x, weight, y);
  }
  check_launch("short_conv");
  if (!tail) return;
  short_conv_tail_kernel<T>
      <<<blocks_for(s.batch * kept * s.channels), threads, 0, stream>>>(s, x, tail, kept);
  check_launch("short_conv's tail");
}

template <class T>
void short_conv_at(const ShortConvSizes& s, const T* x, const T* weight, const double* position, T* kept_tail,
                   T* y, T* tail, std::int64_t kept, Stream stream) {
  short_conv_at_kernel<T><<<blocks_for(s.batch * s.channels), threads, 0, stream>>>(s, x, weight, position,
                                                                                    kept_tail, y, tail, kept);
  check_launch("short_conv_at");
}

template <class T>
void short_conv_input_grad(const ShortConvSizes& s, const T* dy, const T* x, const T* weight, T* dx,
                           Stream stream) {
  if (may_walk<T>(s, {dy, x, dx})) {
    short_conv_run_input_grad_kernel<T><<<runs_of<T>(s), run_threads, 0, stream>>>(s, dy, x, weight, dx);
  } else {
    short_conv_input_grad_kernel<T>
        <<<blocks_for(s.batch * s.all_rows() * s.channels), threads, 0, stream>>>(s, dy, x, weight, dx);
  }
  check_launch("short_conv_input_grad");
}

template <class T, class S>
void short_conv_weight_grad(const ShortConvSizes& s, const T* dy, const T* x, const T* weight, Sum<S> dweight,
                            Stream stream) {
  if (dweight.begins && s.rows != s.channels) {
    clear_kernel<S><<<blocks_for(s.rows * s.taps), threads, 0, stream>>>(dweight.data, s.rows * s.taps);
    check_launch("short_conv_weight_grad's zeros");
  }
  if (may_walk<T>(s, {dy, x})) {
    short_conv_run_weight_grad_kernel<T, S>
        <<<grid_of(ceil_div(s.channels, 32 * neighbours<T>)), 1024, 0, stream>>>(s, dy, x, weight, dweight);
  } else {
    short_conv_weight_grad_kernel<T, S>
        <<<dim3(grid_of(s.channels), grid_of(s.taps)), sum_threads, 0, stream>>>(s, dy, x, weight, dweight);
  }
  check_launch("short_conv_weight_grad");
}

#define PRUN_SHORT_CONV(T)                                                                           \
  template void short_conv(const ShortConvSizes&, const T*, const T*, T*, T*, std::int64_t, Stream); \
  template void short_conv_at(const ShortConvSizes&, const T*, const T*, const double*, T*, T*, T*,  \
                              std::int64_t, Stream);                                                 \
  template void short_conv_input_grad(const ShortConvSizes&, const T*, const T*, const T*, T*, Stream);
#define PRUN_SHORT_CONV_SUM(T, S) \
  template void short_conv_weight_grad(const ShortConvSizes&, const T*, const T*, const T*, Sum<S>, Stream);
PRUN_SHORT_CONV(double)
PRUN_SHORT_CONV(float)
PRUN_SHORT_CONV(bf16)
PRUN_SHORT_CONV(f16)
PRUN_SHORT_CONV_SUM(double, double)
PRUN_SHORT_CONV_SUM(float, float)
PRUN_SHORT_CONV_SUM(bf16, float)
PRUN_SHORT_CONV_SUM(bf16, bf16)
PRUN_SHORT_CONV_SUM(f16, float)
#undef PRUN_SHORT_CONV
#undef PRUN_SHORT_CONV_SUM

}  // namespace prun::cuda
