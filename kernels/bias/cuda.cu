#include "bias/cuda.hpp"

#include <numeric>

#include "cuda/column_sum.cuh"

namespace prun::cuda {
namespace {

template <class T, int N>
struct BiasTerms {
  using C = Compute<T>;
  const T* dy;
  static constexpr int unroll = 8;
  __device__ Pack<T, N> load(int, std::int64_t at) const { return load_pack<N>(dy + at); }
  __device__ void add(const Pack<T, N>& row, int, std::int64_t, Lanes<C, N> (&sums)[1]) const {
    const Lanes<C, N> d = unpack(row);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[0][i] += d[i];
  }
};

// `gap` elements lie between two rows.
template <class T, int N>
struct StridedTerms {
  using C = Compute<T>;
  const T* dy;
  std::int64_t gap;
  static constexpr int unroll = 8;
  __device__ Pack<T, N> load(int row, std::int64_t at) const { return load_pack<N>(dy + at + row * gap); }
  __device__ void add(const Pack<T, N>& row, int, std::int64_t, Lanes<C, N> (&sums)[1]) const {
    const Lanes<C, N> d = unpack(row);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[0][i] += d[i];
  }
};

template <class T>
__global__ void add_bias_kernel(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width,
                                std::int64_t stride) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (row >= rows || column >= width) return;
  const std::int64_t at = row * stride + column;
  store(y + at, load(bias + column) + (x ? load(x + at) : Compute<T>(0)));
}

}  // namespace

template <class T, class S>
void bias_grad(const T* dy, Sum<S> dbias, std::int64_t rows, std::int64_t width, void* workspace,
               Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {dy}, [&]<int N>(std::integral_constant<int, N>) {
    column_sums<N>("bias_grad", stream, BiasTerms<T, N>{dy}, rows, width, Accumulators<S, 1>{{dbias}},
                   workspace);
  });
}

template <class T, class S>
void strided_bias_grad(const T* dy, std::int64_t stride, Sum<S> dbias, std::int64_t rows, std::int64_t width,
                       void* workspace, Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(std::gcd(width, stride), {dy}, [&]<int N>(std::integral_constant<int, N>) {
    column_sums<N>("strided_bias_grad", stream, StridedTerms<T, N>{dy, stride - width}, rows, width,
                   Accumulators<S, 1>{{dbias}}, workspace);
  });
}

template <class T>
std::int64_t bias_grad_workspace(std::int64_t rows, std::int64_t width) {
  return column_sum_workspace<Compute<T>>(rows, width, 1);
}

template <class T>
void add_bias(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t width, std::int64_t stride,
              Stream stream) {
  if (rows == 0) return;
  const RowGrid over(rows, width);
  add_bias_kernel<<<over.grid, over.block, 0, stream>>>(x, bias, y, rows, width, stride);
  check_launch("add_bias");
}

#define PRUN_BIAS_GRAD(T, S)                                                                               \
  template void bias_grad<T, S>(const T*, Sum<S>, std::int64_t, std::int64_t, void*, Stream);              \
  template void strided_bias_grad<T, S>(const T*, std::int64_t, Sum<S>, std::int64_t, std::int64_t, void*, \
                                        Stream)
PRUN_BIAS_GRAD(bf16, bf16);

#define PRUN_BIAS(T)                                                        \
  PRUN_BIAS_GRAD(T, Compute<T>);                                            \
  template std::int64_t bias_grad_workspace<T>(std::int64_t, std::int64_t); \
  template void add_bias<T>(const T*, const T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream)
PRUN_BIAS(double);
PRUN_BIAS(float);
PRUN_BIAS(bf16);
PRUN_BIAS(f16);

}  // namespace prun::cuda
