#include "experts/cuda_biases.hpp"

#include "cuda/check.hpp"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

inline constexpr int bias_threads = 128;

// Returns the row of a choice's expert, or a number below 0 where another rank has it.
__device__ std::int64_t row_of(const ExpertBiasesShape& s, std::int32_t expert) {
  const std::int64_t row = expert - s.first_expert;
  return row < s.experts ? row : -1;
}

template <class T>
__global__ void expert_biases_kernel(const std::int32_t* index, const Compute<T>* weight, const T* bias, T* y,
                                     ExpertBiasesShape s) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x,
                     position = blockIdx.x;
  if (column >= s.hidden) return;
  Compute<T> sum = 0;
  for (std::int64_t c = position * s.choices; c < (position + 1) * s.choices; ++c)
    if (const std::int64_t row = row_of(s, index[c]); row >= 0)
      sum += weight[c] * load(bias + row * s.hidden + column);
  store(y + position * s.hidden + column, sum);
}

// A block takes a choice.
template <class T>
__global__ __launch_bounds__(bias_threads) void expert_biases_grad_kernel(const std::int32_t* index,
                                                                          const T* bias, const T* dy,
                                                                          Compute<T>* dweight,
                                                                          ExpertBiasesShape s) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t choice = blockIdx.x, row = row_of(s, index[choice]);
  C sum = 0;
  if (row >= 0)
    for (std::int64_t i = threadIdx.x; i < s.hidden; i += blockDim.x)
      sum += load(bias + row * s.hidden + i) * load(dy + choice / s.choices * s.hidden + i);
  sum = block_fold(sum, C(0), Add(), scratch);
  if (threadIdx.x == 0) dweight[choice] = sum;
}

// A thread takes a column of an expert's bias.
template <class T, class S>
__global__ void expert_biases_weight_grad_kernel(const std::int32_t* index, const Compute<T>* weight,
                                                 const T* dy, S* dbias, bool begins, ExpertBiasesShape s) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                     expert = blockIdx.y;
  if (column >= s.hidden) return;
  Compute<T> sum = 0;
  for (std::int64_t c = 0; c < s.positions * s.choices; ++c)
    if (index[c] == s.first_expert + expert) sum += weight[c] * load(dy + c / s.choices * s.hidden + column);
  S* const to = dbias + expert * s.hidden + column;
  store(to, static_cast<Compute<S>>(sum) + (begins ? Compute<S>(0) : load(to)));
}

}  // namespace

template <class T>
void expert_biases(const std::int32_t* index, const Compute<T>* weight, const T* bias, T* y,
                   const ExpertBiasesShape& s, Stream stream) {
  if (s.positions == 0) return;
  const dim3 grid(grid_of(s.positions), grid_of(ceil_div(s.hidden, bias_threads)));
  expert_biases_kernel<T><<<grid, bias_threads, 0, stream>>>(index, weight, bias, y, s);
  check_launch("expert_biases");
}

template <class T>
void expert_biases_grad(const std::int32_t* index, const T* bias, const T* dy, Compute<T>* dweight,
                        const ExpertBiasesShape& s, Stream stream) {
  if (s.positions == 0) return;
  expert_biases_grad_kernel<T>
      <<<grid_of(s.positions * s.choices), bias_threads, 0, stream>>>(index, bias, dy, dweight, s);
  check_launch("expert_biases_grad");
}

template <class T, class S>
void expert_biases_weight_grad(const std::int32_t* index, const Compute<T>* weight, const T* dy, Sum<S> dbias,
                               const ExpertBiasesShape& s, Stream stream) {
  const dim3 grid(grid_of(ceil_div(s.hidden, bias_threads)), grid_of(s.experts));
  expert_biases_weight_grad_kernel<T, S>
      <<<grid, bias_threads, 0, stream>>>(index, weight, dy, dbias.data, dbias.begins, s);
  check_launch("expert_biases_weight_grad");
}

#define PRUN_EXPERT_BIASES(T)                                                                              \
  template void expert_biases<T>(const std::int32_t*, const Compute<T>*, const T*, T*,                     \
                                 const ExpertBiasesShape&, Stream);                                        \
  template void expert_biases_grad<T>(const std::int32_t*, const T*, const T*, Compute<T>*,                \
                                      const ExpertBiasesShape&, Stream);                                   \
  template void expert_biases_weight_grad<T, Compute<T>>(const std::int32_t*, const Compute<T>*, const T*, \
                                                         Sum<Compute<T>>, const ExpertBiasesShape&, Stream);
PRUN_EXPERT_BIASES(double)
PRUN_EXPERT_BIASES(float)
PRUN_EXPERT_BIASES(bf16)
PRUN_EXPERT_BIASES(f16)
#undef PRUN_EXPERT_BIASES
template void expert_biases_weight_grad<bf16, bf16>(const std::int32_t*, const float*, const bf16*, Sum<bf16>,
                                                    const ExpertBiasesShape&, Stream);

}  // namespace prun::cuda
