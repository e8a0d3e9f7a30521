#include "activation/cuda.hpp"

#include <numbers>

#include "activation/cuda_gates.cuh"
#include "cuda/column_sum.cuh"
#include "cuda/map.cuh"

namespace prun::cuda {
namespace {

__device__ __forceinline__ float erfc_of(float x) { return erfcf(x); }
__device__ __forceinline__ double erfc_of(double x) { return erfc(x); }
__device__ __forceinline__ float exp_of_value(float x) { return expf(x); }
__device__ __forceinline__ double exp_of_value(double x) { return exp(x); }

// Returns the share of a normal distribution that is below x.
template <class C>
__device__ __forceinline__ C normal_below(C x) {
  return C(0.5) * erfc_of(-x * C(std::numbers::sqrt2 / 2));
}

template <class T>
struct GeluErf {
  using C = Compute<T>;
  __device__ C operator()(C x) const { return x * normal_below(x); }
};

template <class T>
struct GeluErfGrad {
  using C = Compute<T>;
  __device__ C operator()(C dy, C x) const {
    const C density = C(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * exp_of_value(C(-0.5) * x * x);
    return dy * (normal_below(x) + x * density);
  }
};

template <class T>
struct GeluErfGate {
  using C = Compute<T>;
  static __device__ C value(C g) { return GeluErf<T>()(g); }
  static __device__ Gated<C> of(C g) { return {value(g), GeluErfGrad<T>()(C(1), g)}; }
};

template <class T, int N>
__device__ __forceinline__ Lanes<Compute<T>, N> rounded_sum(const Pack<T, N>& a, const Pack<T, N>& b) {
  Lanes<Compute<T>, N> sum = unpack(a);
  const Lanes<Compute<T>, N> other = unpack(b);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += other[i];
  return unpack(pack<T>(sum));
}

inline constexpr int row_unroll = 4;  // counts rows whose loads a thread of bias_gelu has in flight

template <int N, class T>
__global__ __launch_bounds__(256) void bias_gelu_kernel(const T* x, const T* bias, T* y, std::int64_t rows,
                                                        std::int64_t width) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * row_unroll;
  if (column >= width) return;
  const Pack<T, N> shift = load_pack<N>(bias + column);
  Pack<T, N> in[row_unroll];
#pragma unroll
  for (int u = 0; u < row_unroll; ++u)
    if (row + u < rows) in[u] = load_pack<N>(x + (row + u) * width + column);
#pragma unroll
  for (int u = 0; u < row_unroll; ++u)
    if (row + u < rows) {
      Lanes<Compute<T>, N> value = rounded_sum(in[u], shift);
#pragma unroll
      for (int i = 0; i < N; ++i) value[i] = Gelu<T>()(value[i]);
      store_lanes(y + (row + u) * width + column, value);
    }
}

// Gives column_sums its terms, and writes dx on the way.
template <class T, int N>
struct BiasGeluTerms {
  using C = Compute<T>;
  const T *dy, *x, *bias;
  T* dx;
  static constexpr int unroll = 4;
  struct Row {
    Pack<T, N> dy, x;
  };
  __device__ Row load(int, std::int64_t at) const { return {load_pack<N>(dy + at), load_pack<N>(x + at)}; }
  __device__ void add(const Row& r, int column, std::int64_t at, Lanes<C, N> (&sums)[1]) const {
    const Lanes<C, N> value = rounded_sum(r.x, load_pack<N>(bias + column)), d = unpack(r.dy);
    Lanes<C, N> gradient;
#pragma unroll
    for (int i = 0; i < N; ++i) gradient[i] = GeluGrad<T>()(d[i], value[i]);
    const Pack<T, N> written = pack<T>(gradient);
    store_pack(dx + at, written);
    gradient = unpack(written);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[0][i] += gradient[i];
  }
};

template <int N, class Gate, class T>
__global__ __launch_bounds__(256) void gated_kernel(const T* x, T* y, std::int64_t rows, std::int64_t width) {
  using C = Compute<T>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows || column >= width) return;
  const T* in = x + row * 2 * width + column;
  const Pack<T, N> packed_gate = load_pack<N>(in), packed_up = load_pack<N>(in + width);
  const Lanes<C, N> gate = unpack(packed_gate), up = unpack(packed_up);
  Lanes<C, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = Gate::value(gate[i]) * up[i];
  store_lanes(y + row * width + column, result);
}

template <int N, class Gate, class T>
__global__ __launch_bounds__(256) void gated_grad_kernel(const T* dy, const T* x, T* dx, std::int64_t rows,
                                                         std::int64_t width) {
  using C = Compute<T>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows || column >= width) return;
  const std::int64_t at = row * 2 * width + column;
  const Pack<T, N> packed_gate = load_pack<N>(x + at), packed_up = load_pack<N>(x + at + width);
  const Pack<T, N> packed_dy = load_pack<N>(dy + row * width + column);
  const Lanes<C, N> gate = unpack(packed_gate), up = unpack(packed_up), d = unpack(packed_dy);
  Lanes<C, N> dgate, dup;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Gated<C> by = Gate::of(gate[i]);
    dgate[i] = d[i] * up[i] * by.slope;
    dup[i] = d[i] * by.value;
  }
  store_lanes(dx + at, dgate);
  store_lanes(dx + at + width, dup);
}

template <class Gate, class T>
void launch_gated(const char* name, const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {x, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(rows, width / N);
    gated_kernel<N, Gate><<<at.grid, at.block, 0, stream>>>(x, y, rows, width);
  });
  check_launch(name);
}

template <class Gate, class T>
void launch_gated_grad(const char* name, const T* dy, const T* x, T* dx, std::int64_t rows,
                       std::int64_t width, Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {dy, x, dx}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(rows, width / N);
    gated_grad_kernel<N, Gate><<<at.grid, at.block, 0, stream>>>(dy, x, dx, rows, width);
  });
  check_launch(name);
}

}  // namespace

template <class T>
void gelu(const T* x, T* y, std::int64_t n, Stream stream) {
  map("gelu", stream, n, Gelu<T>(), y, x);
}

template <class T>
void gelu_grad(const T* dy, const T* x, T* dx, std::int64_t n, Stream stream) {
  map("gelu_grad", stream, n, GeluGrad<T>(), dx, dy, x);
}

template <class T>
void gelu_erf(const T* x, T* y, std::int64_t n, Stream stream) {
  map("gelu_erf", stream, n, GeluErf<T>(), y, x);
}

template <class T>
void gelu_erf_grad(const T* dy, const T* x, T* dx, std::int64_t n, Stream stream) {
  map("gelu_erf_grad", stream, n, GeluErfGrad<T>(), dx, dy, x);
}

template <class T>
void bias_gelu(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {x, bias, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(ceil_div(rows, row_unroll), width / N);
    bias_gelu_kernel<N><<<at.grid, at.block, 0, stream>>>(x, bias, y, rows, width);
  });
  check_launch("bias_gelu");
}

template <class T>
void bias_gelu_grad(const T* dy, const T* x, const T* bias, T* dx, Compute<T>* dbias, std::int64_t rows,
                    std::int64_t width, void* workspace, Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {dy, x, bias, dx}, [&]<int N>(std::integral_constant<int, N>) {
    column_sums<N>("bias_gelu_grad", stream, BiasGeluTerms<T, N>{dy, x, bias, dx}, rows, width,
                   Accumulators<Compute<T>, 1>{{dbias}}, workspace);
  });
}

template <class T>
std::int64_t bias_gelu_grad_workspace(std::int64_t rows, std::int64_t width) {
  return column_sum_workspace<Compute<T>>(rows, width, 1);
}

template <class T>
void swiglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated<SiluGate<T>>("swiglu", x, y, rows, width, stream);
}

template <class T>
void swiglu_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated_grad<SiluGate<T>>("swiglu_grad", dy, x, dx, rows, width, stream);
}

template <class T>
void geglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated<GeluGate<T>>("geglu", x, y, rows, width, stream);
}

template <class T>
void geglu_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated_grad<GeluGate<T>>("geglu_grad", dy, x, dx, rows, width, stream);
}

template <class T>
void geglu_erf(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated<GeluErfGate<T>>("geglu_erf", x, y, rows, width, stream);
}

template <class T>
void geglu_erf_grad(const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, Stream stream) {
  launch_gated_grad<GeluErfGate<T>>("geglu_erf_grad", dy, x, dx, rows, width, stream);
}

#define PRUN_ACTIVATION(T)                                                                                   \
  template void gelu<T>(const T*, T*, std::int64_t, Stream);                                                 \
  template void gelu_grad<T>(const T*, const T*, T*, std::int64_t, Stream);                                  \
  template void gelu_erf<T>(const T*, T*, std::int64_t, Stream);                                             \
  template void gelu_erf_grad<T>(const T*, const T*, T*, std::int64_t, Stream);                              \
  template void bias_gelu<T>(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);                    \
  template void bias_gelu_grad<T>(const T*, const T*, const T*, T*, Compute<T>*, std::int64_t, std::int64_t, \
                                  void*, Stream);                                                            \
  template std::int64_t bias_gelu_grad_workspace<T>(std::int64_t, std::int64_t);                             \
  template void swiglu<T>(const T*, T*, std::int64_t, std::int64_t, Stream);                                 \
  template void swiglu_grad<T>(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);                  \
  template void geglu_erf<T>(const T*, T*, std::int64_t, std::int64_t, Stream);                              \
  template void geglu_erf_grad<T>(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);               \
  template void geglu<T>(const T*, T*, std::int64_t, std::int64_t, Stream);                                  \
  template void geglu_grad<T>(const T*, const T*, T*, std::int64_t, std::int64_t, Stream)
PRUN_ACTIVATION(double);
PRUN_ACTIVATION(float);
PRUN_ACTIVATION(bf16);
PRUN_ACTIVATION(f16);

}  // namespace prun::cuda
