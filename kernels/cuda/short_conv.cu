// The short convolution as kernels/cpu/short_conv.cpp has it: a thread for each element, which computes what
// it needs of others again.
#include "cuda/short_conv.hpp"

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

// Is an element of a sample: a position of a channel.
struct At {
  Index sample, position, channel;

  __device__ static At of(const ShortConvSizes& s, Index element) {
    const Index row = element / s.channels;
    return {row / s.seq, row % s.seq, element % s.channels};
  }
  __device__ Index element(const ShortConvSizes& s) const {
    return (sample * s.seq + position) * s.channels + channel;
  }
  // Says how many positions before this one its sum reaches.
  __device__ Index reach(const ShortConvSizes& s) const {
    const Index before = position - (s.documents ? s.documents[sample * s.seq + position] : 0);
    return before < s.taps - 1 ? before : s.taps - 1;
  }
};

template <class T>
__device__ Compute<T> sum_at(const ShortConvSizes& s, const T* x, const T* weight, const At& at) {
  const T* const taps = weight + row_of(s, at.channel) * s.taps + s.taps - 1;
  Compute<T> sum = 0;
  for (Index before = at.reach(s); before >= 0; --before)
    sum += load(taps - before) * load(x + at.element(s) - before * s.channels);
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

template <class T>
__global__ void short_conv_input_grad_kernel(ShortConvSizes s, const T* dy, const T* x, const T* weight,
                                             T* dx) {
  const Index element = element_of_thread();
  if (element >= s.batch * s.seq * s.channels) return;
  const At own = At::of(s, element);
  const T* const taps = weight + row_of(s, own.channel) * s.taps + s.taps - 1;
  Compute<T> sum = 0;
  for (Index before = s.taps - 1; before >= 0; --before) {
    const At reader{own.sample, own.position + before, own.channel};
    if (reader.position < s.seq && before <= reader.reach(s))
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
             static_cast<C>(load(x + at.element(s) - before * s.channels));
  }
  sum = block_fold(sum, C(0), Add(), scratch);
  S* const to = dweight.data + row_of(s, channel) * s.taps + s.taps - 1 - before;
  if (threadIdx.x == 0) store(to, dweight.begins ? sum : load(to) + sum);
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
  return s;
}

template <class T>
void short_conv(const ShortConvSizes& s, const T* x, const T* weight, T* y, T* tail, std::int64_t kept,
                Stream stream) {
  short_conv_kernel<T><<<blocks_for(s.batch * s.seq * s.channels), threads, 0, stream>>>(s, x, weight, y);
  check_launch("short_conv");
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
  short_conv_input_grad_kernel<T>
      <<<blocks_for(s.batch * s.seq * s.channels), threads, 0, stream>>>(s, dy, x, weight, dx);
  check_launch("short_conv_input_grad");
}

template <class T, class S>
void short_conv_weight_grad(const ShortConvSizes& s, const T* dy, const T* x, const T* weight, Sum<S> dweight,
                            Stream stream) {
  if (dweight.begins && s.rows != s.channels) {
    clear_kernel<S><<<blocks_for(s.rows * s.taps), threads, 0, stream>>>(dweight.data, s.rows * s.taps);
    check_launch("short_conv_weight_grad's zeros");
  }
  short_conv_weight_grad_kernel<T, S>
      <<<dim3(grid_of(s.channels), grid_of(s.taps)), sum_threads, 0, stream>>>(s, dy, x, weight, dweight);
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
