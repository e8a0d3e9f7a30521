#include "cuda/bias.hpp"

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

}  // namespace

template <class T>
void bias_grad(const T* dy, Compute<T>* dbias, std::int64_t rows, std::int64_t width, void* workspace,
               Stream stream) {
  if (rows == 0) return;
  with_chunk<T>(width, {dy}, [&]<int N>(std::integral_constant<int, N>) {
    column_sums<N>("bias_grad", stream, BiasTerms<T, N>{dy}, rows, width,
                   Accumulators<Compute<T>, 1>{{dbias}}, workspace);
  });
}

template <class T>
std::int64_t bias_grad_workspace(std::int64_t rows, std::int64_t width) {
  return column_sum_workspace<Compute<T>>(rows, width, 1);
}

#define PRUN_BIAS(T)                                                                            \
  template void bias_grad<T>(const T*, Compute<T>*, std::int64_t, std::int64_t, void*, Stream); \
  template std::int64_t bias_grad_workspace<T>(std::int64_t, std::int64_t)
PRUN_BIAS(double);
PRUN_BIAS(float);
PRUN_BIAS(bf16);

}  // namespace prun::cuda
