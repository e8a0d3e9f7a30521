// Launches elementwise kernels: out[i] = f(in[i]...), each thread with several 16-byte loads in flight.
#pragma once

#include "cuda/device.cuh"

namespace prun::cuda {

// Holds what a thread has loaded of one chunk.
template <int N, class... In>
struct Loaded;

template <int N, class A>
struct Loaded<N, A> {
  Pack<A, N> a;

  __device__ __forceinline__ void load(std::int64_t at, const A* x) { a = load_pack<N>(x + at); }
  template <class F>
  __device__ __forceinline__ auto apply(F f) const {
    const auto x = unpack(a);
    Lanes<decltype(f(x[0])), N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = f(x[i]);
    return result;
  }
};

template <int N, class A, class B>
struct Loaded<N, A, B> {
  Pack<A, N> a;
  Pack<B, N> b;

  __device__ __forceinline__ void load(std::int64_t at, const A* x, const B* y) {
    a = load_pack<N>(x + at);
    b = load_pack<N>(y + at);
  }
  template <class F>
  __device__ __forceinline__ auto apply(F f) const {
    const auto x = unpack(a);
    const auto y = unpack(b);
    Lanes<decltype(f(x[0], y[0])), N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = f(x[i], y[i]);
    return result;
  }
};

inline constexpr int map_threads = 256;
inline constexpr int map_unroll = 4;

// `out` may be one of the inputs.
template <int N, class F, class Out, class... In>
__global__ __launch_bounds__(map_threads) void map_kernel(std::int64_t n, F f, Out* out, const In*... in) {
  const std::int64_t chunks = n / N;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (map_threads * map_unroll) + threadIdx.x;
  Loaded<N, In...> loaded[map_unroll];
#pragma unroll
  for (int u = 0; u < map_unroll; ++u)
    if (first + u * map_threads < chunks) loaded[u].load((first + u * map_threads) * N, in...);
#pragma unroll
  for (int u = 0; u < map_unroll; ++u)
    if (first + u * map_threads < chunks)
      store_lanes(out + (first + u * map_threads) * N, loaded[u].apply(f));
  const std::int64_t last = chunks * N + threadIdx.x;
  if (N > 1 && blockIdx.x == 0 && last < n) {
    Loaded<1, In...> one;
    one.load(last, in...);
    store_lanes(out + last, one.apply(f));
  }
}

template <class F, class Out, class... In>
void map(const char* name, Stream stream, std::int64_t n, F f, Out* out, const In*... in) {
  if (n == 0) return;
  constexpr int wide = chunk<Out, In...>;
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(n / N, map_threads * map_unroll));
    map_kernel<N><<<grid_of(blocks), map_threads, 0, stream>>>(n, f, out, in...);
  };
  if (aligned({out, in...}))
    launch(std::integral_constant<int, wide>());
  else
    launch(std::integral_constant<int, 1>());
  check_launch(name);
}

}  // namespace prun::cuda
